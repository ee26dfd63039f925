# In torch's place for tests of `vplan tune --on-card`: what dryrun/probe/vplan_card.py asks of it, and an optimizer whose step takes the
# seconds that it is told.
import sys
import time
import types

hooks = {"pre": [], "post": []}
held = 0


class Optimizer:
    def __init__(self, step_s):
        self.step_s = step_s

    def step(self):
        for hook in hooks["pre"]:
            hook(self, (), {})
        time.sleep(self.step_s)
        for hook in hooks["post"]:
            hook(self, (), {})


class OutOfMemoryError(RuntimeError):
    pass


def save(value, f):
    if hasattr(f, "write"):
        f.write(b"saved")
    else:
        with open(f, "wb") as out:
            out.write(b"saved")


def load(f):
    with open(f, "rb") as saved:
        return saved.read()


def is_grad_enabled():
    return True


cuda = types.SimpleNamespace(
    is_initialized=lambda: True, synchronize=lambda: None, max_memory_allocated=lambda: held, max_memory_reserved=lambda: 2 * held,
    mem_get_info=lambda: (10 ** 9 - 3 * held, 10 ** 9))
_C = types.SimpleNamespace()
optim = sys.modules["torch.optim"] = types.ModuleType("torch.optim")
optim.optimizer = sys.modules["torch.optim.optimizer"] = types.ModuleType("torch.optim.optimizer")
optim.optimizer.register_optimizer_step_pre_hook = hooks["pre"].append
optim.optimizer.register_optimizer_step_post_hook = hooks["post"].append

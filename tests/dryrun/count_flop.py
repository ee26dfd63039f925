# tests/dryrun/count_flop.py: what torch's FlopCounterMode counts in optimizer step N of a script, which it ends.
#     python3 count_flop.py N SCRIPT ARGUMENTS...
import os
import sys
import torch
import torch.optim.optimizer
from torch.utils.flop_counter import FlopCounterMode

wanted, steps, mode = int(sys.argv[1]), 0, FlopCounterMode(display=False)


def after_step(*a):
    global steps
    steps += 1
    if steps == wanted - 1:
        mode.__enter__()
    elif steps == wanted:
        mode.__exit__(None, None, None)
        print("FLOP", mode.get_total_flops(), flush=True)
        os._exit(0)


torch.optim.optimizer.register_optimizer_step_post_hook(after_step)
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.realpath(sys.argv[0])))
__file__ = sys.argv[0]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))

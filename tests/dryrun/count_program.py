# tests/dryrun/count_program.py: what others count in optimizer step N of a script, which it ends after the next: the products by torch's FlopCounterMode, the bytes of
# copies between host and device by a TorchDispatchMode of its own, and by a library that is preloaded before the stand-in (count_launches.c,
# built to $COUNT_LAUNCHES) the work given to the card and all bytes copied. For the recorded program of `dryrun --time`: tests/dryrun/check_program.py.
#     python3 count_program.py N SCRIPT ARGUMENTS...
import ctypes
import os
import sys

library = os.environ.get("COUNT_LAUNCHES")
if library and library not in os.environ.get("LD_PRELOAD", ""):
    os.environ["LD_PRELOAD"] = library + ":" + os.environ["LD_PRELOAD"]
    os.execv(sys.executable, [sys.executable] + sys.argv)
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

wanted, steps = int(sys.argv[1]), 0


class Copies(TorchDispatchMode):
    to = back = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0]
        if name in ("copy_", "_to_copy"):
            source, target = (args[1], args[0]) if name == "copy_" else (args[0], out)
            n = target.numel() * target.element_size() if name == "_to_copy" else source.numel() * source.element_size()
            if source.device.type == "cpu" and target.device.type == "cuda":
                Copies.to += n
            elif source.device.type == "cuda" and target.device.type == "cpu":
                Copies.back += n
        elif name == "lift_fresh" and args[0].is_cuda:      # torch.tensor(x, device="cuda"): copied beneath the dispatcher
            Copies.to += args[0].numel() * args[0].element_size()
        elif name == "_local_scalar_dense" and args[0].is_cuda:
            Copies.back += args[0].element_size()
        return out


def grouped(formula, q, k):
    """Of an attention with fewer heads of keys than of queries, which FlopCounterMode refuses: its keys and values as often as they are used."""
    def flop(*shapes, **more):
        shapes, heads = list(shapes), shapes[q][1]
        for i in (k, k + 1):
            shapes[i] = (shapes[i][0], heads) + tuple(shapes[i][2:])
        return formula(*shapes[:k + 2])
    return flop


def with_dtype(formula, operands):
    """Of a product that is told its result's dtype, which FlopCounterMode takes for a shape."""
    return lambda *shapes, out_shape=None, **more: formula(*shapes[:operands])


def mapping():
    from torch.utils import flop_counter as f
    aten = torch.ops.aten
    out = {aten.mm: with_dtype(f.mm_flop, 2), aten.addmm: with_dtype(f.addmm_flop, 3),
           aten.bmm: with_dtype(f.bmm_flop, 2), aten.baddbmm: with_dtype(f.baddbmm_flop, 3)}
    for name in ("flash", "efficient", "cudnn"):
        forward = getattr(torch.ops.aten, "_scaled_dot_product_%s_attention" % name, None)
        backward = getattr(torch.ops.aten, "_scaled_dot_product_%s_attention_backward" % name, None)
        if forward in f.flop_registry:
            out[forward] = grouped(f.sdpa_flop_count, 0, 1)
        if backward in f.flop_registry:     # grad, query, key, value
            out[backward] = grouped(f.sdpa_backward_flop_count, 1, 2)
    return out


flop, copies = FlopCounterMode(display=False, custom_mapping=mapping()), Copies()


def calls():
    """Work given to the card, bytes to it and from it."""
    library = ctypes.CDLL(None)
    return [library.vplan_count_launches(), library.vplan_count_copied(1), library.vplan_count_copied(2)]


def after_step(*a):
    global steps
    steps += 1
    if steps == wanted - 1:
        copies.__enter__()
        flop.__enter__()
    elif steps == wanted:      # the work of the step behind it: the modes take some operators apart
        flop.__exit__(None, None, None)
        copies.__exit__(None, None, None)
        after_step.calls = calls()
    elif steps == wanted + 1:
        print("COUNTED", flop.get_total_flops(), Copies.to, Copies.back, *[now - was for now, was in zip(calls(), after_step.calls)], flush=True)
        os._exit(0)


register_optimizer_step_post_hook(after_step)
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.realpath(sys.argv[0])))
__file__ = sys.argv[0]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))

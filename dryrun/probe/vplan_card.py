# dryrun/probe/vplan_card.py: what `vplan tune --on-card` puts into a training command that really runs, on the card here. Nothing stands
# in for CUDA: it lets the command train for a few optimizer steps, waits for the card after each, and writes what the last ones took
# and the peaks of PyTorch's allocator into $VPLAN_CARD_REPORT/report.<pid>.json. Training ends as in a dry run (vplan_steps.py), and
# no checkpoint is written (vplan_files.py).
import atexit
import json
import os
import statistics
import sys
import time

from vplan_files import Files
from vplan_imports import ImportHook
from vplan_steps import Steps

WARM_STEPS = 3         # not timed: kernels are loaded and chosen, optimizer states are made


def start():
    run = CardRun()
    ImportHook({"torch": run.on_torch, **run.step_modules(), **run.file_modules()}).install()
    atexit.register(run.finish)
    os.register_at_fork(after_in_child=run.after_fork)


class CardRun(Files, Steps):
    def __init__(self):
        self.pid, self.dead = os.getpid(), False
        self.folder = os.environ["VPLAN_CARD_REPORT"]
        self.torch, self.phase = None, "load"
        self.recording_program = False
        self.total_steps = self.step_depth = 0
        self.ends = []                 # when each step had ended, on the card too
        self.allocated = self.reserved = 0
        self.error, self.notes = "", {}
        self.init_files()
        self.init_steps()

    # ---- what Files and Steps ask for ------------------------------------------------------------

    def note(self, key, text):
        self.notes.setdefault(key, text)

    def counters(self):
        return {}

    def saving(self, plain):
        return plain

    # ---- hooks -----------------------------------------------------------------------------------

    def on_torch(self, torch):
        self.torch = torch
        import torch.optim.optimizer as opt
        opt.register_optimizer_step_pre_hook(self.on_step_begin)
        opt.register_optimizer_step_post_hook(self.on_step_end)
        self.torch_save = torch.save
        torch.save, torch.load = self.writes_nothing(torch.save, "f"), self.reads_shapes(torch.load)
        plain_reset, plain_hook = getattr(torch._C, "_cuda_resetPeakMemoryStats", None), sys.excepthook

        def reset(*args):              # the script begins its peaks anew: ours are the run's
            self.take_peaks()
            return plain_reset(*args)

        def excepthook(kind, value, trace):
            if os.getpid() == self.pid:
                self.error = "%s: %s" % (kind.__name__, str(value)[:2000])
            plain_hook(kind, value, trace)
        if plain_reset:
            torch._C._cuda_resetPeakMemoryStats = reset
        sys.excepthook = excepthook

    def on_step_begin(self, optimizer, args, kwargs):
        self.step_depth += 1           # one that wraps another steps it within its own

    def on_step_end(self, optimizer, args, kwargs):
        self.step_depth = max(0, self.step_depth - 1)
        if not self.step_depth:
            self.stepped_by(optimizer)

    def finish_step(self, optimizer):
        self.total_steps += 1
        if self.first_optimizer in (None, id(optimizer)):
            if self.torch.cuda.is_initialized():
                self.torch.cuda.synchronize()
            self.ends.append(time.perf_counter())
        self.count_step(optimizer)

    # ---- the report ------------------------------------------------------------------------------

    def take_peaks(self):
        cuda = self.torch.cuda
        if cuda.is_initialized():
            self.allocated = max(self.allocated, cuda.max_memory_allocated())
            self.reserved = max(self.reserved, cuda.max_memory_reserved())

    def after_fork(self):
        self.dead = True

    def finish(self):
        if self.dead or os.getpid() != self.pid or self.torch is None:
            return
        self.dead = True
        steps = [b - a for a, b in zip(self.ends[WARM_STEPS - 1:], self.ends[WARM_STEPS:])]
        on_card = 0
        try:
            self.take_peaks()
            if self.torch.cuda.is_initialized():
                free, total = self.torch.cuda.mem_get_info()
                on_card = total - free
        except Exception:              # the command may have broken its context
            pass
        report = {"steps": self.total_steps, "timed": len(steps), "step_time_s": statistics.median(steps) if steps else None,
                  "allocated_peak_bytes": self.allocated, "reserved_peak_bytes": self.reserved, "card_bytes": on_card, "was_cut": self.cut is not None,
                  "error": self.error}
        path = os.path.join(self.folder, "report.%d.json" % self.pid)
        with open(path + ".tmp", "w") as f:
            json.dump(report, f)
        os.rename(path + ".tmp", path)

# dryrun/probe/vplan_probe.py: the probe of `vplan dryrun`, injected through PYTHONPATH.
#
# It waits for `import torch`, then follows the run from outside: phases from module calls, backward
# calls and optimizer steps; PyTorch's own allocator counters at each boundary; the allocator's history
# for the owners at the peak; reads of device values, which are not computed here, with their place.
# It writes one JSON file, report.<pid>.json, into $VPLAN_NULL_REPORT, and changes no number the script
# can see: peaks it resets are given back to the script through the wrapped statistics call.
#
# Python 3.8 and newer; nothing but the standard library and the torch that the script imports.
import atexit
import ctypes
import json
import os
import re
import sys
import threading
import time
import weakref

from vplan_arguments import Arguments
from vplan_compile import Compile
from vplan_detection import Detection
from vplan_files import Files
from vplan_growth import Growth
from vplan_imports import ImportHook
from vplan_kernels import Kernels
from vplan_owners import OURS, Owners, address_of, short_place
from vplan_program import Program
from vplan_ranks import Ranks
from vplan_steps import Steps
from vplan_values import Values

SUPPORTED = ("2.7.0", "2.7.1", "2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1",
             "2.15.0")
HISTORY_ENTRIES = 150000      # allocator events kept; about 20 steps of a small model
OWNERS_MAX = 40
READS_MAX = 200
COUNTERS = ("device_bytes", "device_bytes_peak", "n_malloc", "n_malloc_failed", "n_launch", "n_read",
            "read_bytes", "outside_bytes", "n_collective", "n_communicator", "managed_bytes",
            "managed_bytes_peak", "n_no_image", "n_cudnn_plan", "cudnn_workspace_peak", "n_cudnn_refused")

_probe = None


def start():
    """Install the import hook; called once per process by sitecustomize."""
    global _probe
    if _probe is None:
        _probe = Probe()
        ImportHook({
            **_probe.step_modules(), **_probe.file_modules(), **_probe.argument_modules(),
            "torch": _probe.on_torch, "torch.distributed.utils": _probe.on_distributed_utils,
            "torch.distributed.distributed_c10d": _probe.on_c10d,
            "torch.distributed.rendezvous": _probe.on_rendezvous, "deepspeed.runtime.zero.utils": _probe.on_zero_utils,
            "accelerate.commands": _probe.on_accelerate,
            "torch.distributed.checkpoint.default_planner": _probe.on_checkpoint_planner,
            "transformers.modeling_utils": _probe.on_transformers,
            "transformers.masking_utils": _probe.on_masking,
            "torch._inductor.fx_passes.joint_graph": _probe.on_constant_folding,
            "torch._inductor.fx_passes.pad_mm": _probe.on_padding,
            "torch._inductor.runtime.triton_heuristics": _probe.on_inductor, "triton.runtime.jit": _probe.on_triton,
            "torch._inductor.cudagraph_trees": _probe.on_graph_trees,
            "trl.trainer.grpo_trainer": _probe.on_completions, "trl.trainer.rloo_trainer": _probe.on_completions,
            "trl.trainer.dpo_trainer": _probe.on_preferences, "trl.trainer.kto_trainer": _probe.on_preferences,
            "torch.optim.lbfgs": _probe.on_lbfgs,
            "transformers.generation.stopping_criteria": _probe.on_stopping,
            "transformers.generation.utils": _probe.on_generation,
            "unsloth_zoo.tokenizer_utils": _probe.on_untrained,
            "ultralytics.nn.tasks": _probe.on_yolo_models, "ultralytics.utils.loss": _probe.on_yolo_loss,
            "ultralytics.utils.tal": _probe.on_yolo_assigner,
            "torchvision.models.detection._utils": _probe.on_torchvision_sampler,
            "torchvision.models.detection.roi_heads": _probe.on_torchvision_heads}, _probe.loading).install()
        _probe.hook_exceptions()           # for an import of torch that fails
        if "argparse" in sys.modules:
            _probe.on_argparse(sys.modules["argparse"])
        atexit.register(_probe.finish)
        os.register_at_fork(after_in_child=_probe.after_fork)


class Probe(Values, Ranks, Steps, Program, Kernels, Growth, Owners, Files, Compile, Arguments, Detection):
    def __init__(self):
        self.pid = os.getpid()
        self.folder = os.environ["VPLAN_NULL_REPORT"]
        self.world = int(os.environ.get("VPLAN_NULL_WORLD") or 0)
        self.rank = int(os.environ.get("RANK") or 0) if self.world > 1 else 0
        self.init_ranks()
        self.value = os.environ.get("VPLAN_NULL_VALUE") or ""
        self.padding = os.environ.get("VPLAN_NULL_PADDING") or "mask"
        self.select = float(os.environ.get("VPLAN_NULL_SELECT") or 1)
        self.want_snapshot = bool(os.environ.get("VPLAN_NULL_SNAPSHOT"))
        self.want_owners = not os.environ.get("VPLAN_NULL_NO_OWNERS")
        self.init_files()
        self.init_steps()
        self.init_program()
        self.init_growth()
        self.init_values()
        self.init_detection()
        self.lib = None
        self.torch = None
        self.dead = False
        self.error = None              # {type, message}
        self.phases = {}               # name -> [allocated, reserved, requested] peaks
        self.order = []
        self.phase = "load"
        self.kind = None               # forward, backward or step, where the phase's name may not say it
        self.gap = None                # peaks between a backward and what follows it
        self.k = 1                     # optimizer step under way
        self.stepped = False
        self.backward_depth = 0
        self.step_depth = 0
        self.save_depth = 0
        self.main = threading.main_thread().ident
        self.local = threading.local()
        self.kept = {}                 # the script's view of peaks we have reset
        self.init_owners()
        self.grads = []                # (allocation counter, addresses)
        self.roots = weakref.WeakSet()
        self.optimizers = weakref.WeakSet()
        self.seen_roots = set()
        self.peak = 0
        self.peak_phase = "load"
        self.peak_at = 0               # allocation counter when the peak was noticed
        self.analysed_peak = -1
        self.recording = False
        self.rearm = False
        self.library = None            # the operators we override
        self.owners_requested = 0
        self.n_analyses = 0
        self.owners = None
        self.live_at_peak = []
        self.oom = None
        self.reads = {}
        self.generated_all = False     # transformers' generate() has reached its maximum length
        self.selections = {}           # place -> [times, elements]
        self.reads_lost = 0
        self.read_busy = threading.local()
        self.notes = {}
        self.written_at = 0.0
        self.total_steps = 0
        self.cudnn = 0                 # its version; 0: off
        self.convs = 0
        self.norms = 0                 # batch norms that cuDNN would have run
        self.snapshot_taken = False
        self.version = ""
        self.started = time.time()

    # ---- the stand-in ----------------------------------------------------------------------------

    def load_lib(self):
        try:
            self.lib = ctypes.CDLL("libvplan-null.so")
            self.lib.vplan_null_counters.restype = ctypes.POINTER(ctypes.c_uint64)
        except (OSError, AttributeError):
            self.lib = None
            return
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p)
        self.notify = kind(self.on_notify)
        self.lib.vplan_null_set_notify(self.notify)

    def counters(self):
        if self.lib is None:
            return {}
        c = self.lib.vplan_null_counters()
        return {name: int(c[i]) for i, name in enumerate(COUNTERS)}

    def on_notify(self, kind, n_bytes, what):
        if self.dead or getattr(self.read_busy, "on", False):
            return
        self.read_busy.on = True
        try:
            if kind == ord("r"):
                self.on_read(n_bytes)
            elif kind == ord("s"):
                self.note_spared(os.fsdecode(what))
            elif kind == ord("c"):
                self.on_collective(what.decode("ascii"))
            else:
                name = what.decode("ascii", "replace")
                self.error = {"type": "unsupported", "message": name, "where": self.where()}
                self.finish()
        except Exception:
            pass
        finally:
            self.read_busy.on = False

    def where(self):
        """File, line and function of the innermost Python frame that is not PyTorch's or ours."""
        frame = sys._getframe(1)
        first = None
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith((OURS, "<frozen")):
                place = "%s:%d (%s)" % (name, frame.f_lineno, frame.f_code.co_name)
                if first is None:
                    first = place
                if "/torch/" not in name and "/site-packages/" not in name and "/lib/python" not in name:
                    return place if first == place else place + " through " + short_place(first)
            frame = frame.f_back
        return first or "(no Python frame: PyTorch's autograd thread)"

    def on_read(self, n_bytes):
        place = self.where()
        entry = self.reads.get(place)
        if entry is None:
            if len(self.reads) >= READS_MAX:
                self.reads_lost += 1
                return
            entry = self.reads[place] = [0, 0, self.phase]
        entry[0] += 1
        entry[1] += n_bytes

    def note(self, key, text):
        self.notes.setdefault(key, text)

    def check_version_file(self, path):
        """Refuse an unknown torch before its libraries are loaded, which may miss functions by then."""
        try:
            with open(path) as f:
                found = re.search(r"^__version__\s*=\s*['\"]([^'\"]{1,64})['\"]", f.read(10000), re.M)
        except OSError:
            return
        if found and found.group(1).split("+")[0] not in SUPPORTED:
            self.version = found.group(1)
            self.refuse("version", "torch %s is not known to this dry run (known: %s)"
                        % (self.version, ", ".join(SUPPORTED)), 4)

    def keep_allocator_setting(self):
        """What the allocator is told, before torch reads it: of what it cannot split it aborts as it is imported."""
        for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
            if os.environ.get(name):
                path = os.path.join(self.folder, "allocator.%d" % os.getpid())
                with open(path, "w") as f:
                    f.write("%s=%s" % (name, os.environ[name][:200]))
                return path
        return None

    def loading(self, name, origin, run):
        """A module of those that are waited for is run."""
        if name != "torch":
            run()
            return
        if origin:
            self.check_version_file(os.path.join(os.path.dirname(origin), "version.py"))
        kept = self.keep_allocator_setting()
        run()
        if kept:                       # read without an abort
            os.rename(kept, os.path.join(self.folder, "allocator_read.%d" % os.getpid()))

    # ---- torch is there ------------------------------------------------------------------------------

    def on_torch(self, torch):
        self.torch = torch
        self.version = str(torch.__version__)
        base = self.version.split("+")[0]
        if torch.version.cuda is None:
            self.refuse("environment", "torch %s is not a CUDA build" % self.version, 5)
        if base not in SUPPORTED:
            self.refuse("version", "torch %s is not known to this dry run (known: %s)"
                        % (self.version, ", ".join(SUPPORTED)), 4)
        self.load_lib()
        if self.lib is None:
            self.refuse("environment", "the stand-in libraries are not loaded in this process", 5)
        C = torch._C
        self.raw_stats = C._cuda_memoryStats
        self.raw_reset = C._cuda_resetPeakMemoryStats
        C._cuda_memoryStats = self.stats_for_script
        C._cuda_resetPeakMemoryStats = self.reset_for_script
        self.hook_visible(torch)
        self.start_cudnn(torch)
        torch.cuda._lazy_call(self.on_cuda)
        self.hook_modules(torch)
        self.hook_backward(torch)
        import torch.optim.optimizer as opt
        opt.register_optimizer_step_pre_hook(self.on_step_begin)
        opt.register_optimizer_step_post_hook(self.on_step_end)
        self.torch_save = torch.save
        torch.save = self.saving(self.writes_nothing(torch.save, "f"))
        torch.load = self.reads_shapes(torch.load)
        self.hook_exceptions()
        self.lib.vplan_null_expect.argtypes = [ctypes.c_int, ctypes.c_uint64]
        self.lib.vplan_null_guard()
        self.hook_masks(torch)
        self.hook_single(torch)
        self.hook_ones(torch)
        self.hook_finite(torch)
        self.hook_graphs(torch)
        self.hook_ctc(torch)
        self.tell_scripts(torch)
        if self.value:
            self.hook_values(torch)

    def hook_visible(self, torch):
        """A script that chooses a card of its machine by CUDA_VISIBLE_DEVICES chooses the one there is."""
        plain = torch.cuda._parse_visible_devices
        torch.cuda._parse_visible_devices = lambda: [0] if plain() else []

    def hook_exceptions(self):
        plain = sys.excepthook
        if getattr(plain, "of_the_probe", False):
            return

        def excepthook(kind, value, trace):
            self.on_exception(kind, value)
            plain(kind, value, trace)
        excepthook.of_the_probe = True
        sys.excepthook = excepthook

    def refuse(self, kind, text, code):
        sys.stderr.write("vplan dryrun: %s\n" % text)
        self.error = {"type": kind, "message": text, "where": ""}
        self.finish()
        sys.stderr.flush()
        os._exit(code)

    def on_exception(self, kind, value):
        if os.getpid() != self.pid or not self.only_arguments():
            return
        self.error = {"type": kind.__name__, "message": self.message_of(value)[:4000], "where": "", "read": self.read_before(value)}
        if self.cudnn and "cudnn" in str(value).lower():
            self.note("cudnn_error", "cuDNN refused what the script asked of it, or could not answer it without a "
                      "device; --cudnn off runs PyTorch's own kernels")

    def message_of(self, value):
        """What an error says; of an import that failed for another's want (transformers, diffusers), the first of them too."""
        root = value
        while root.__cause__ is not None:
            root = root.__cause__
        if root is value or not isinstance(root, ImportError):
            return str(value)
        return "%s (%s)" % tuple(str(e).strip().split("\n")[0].rstrip() for e in (value, root))

    def read_before(self, value):
        """Where a line that an error came through had read values of the device, which are zeros here; or ""."""
        trace, lines = value.__traceback__, []
        while trace is not None:
            lines.append("%s:%d (" % (short_place(trace.tb_frame.f_code.co_filename), trace.tb_lineno))
            trace = trace.tb_next
        for line in reversed(lines):
            for place in self.reads:
                if short_place(place).rsplit(" through ", 1)[-1].startswith(line):
                    return place
        return ""

    def start_cudnn(self, torch):
        """Convolutions and attention ask the real cuDNN, which answers without a device; where it cannot,
        PyTorch's own paths run. Either way the report says so."""
        wanted = os.environ.get("VPLAN_NULL_CUDNN") != "off"
        cudnn, nvrtc = _cuda_libraries(torch)
        opened = self.lib.vplan_null_cudnn_open
        opened.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        self.lib.vplan_null_cudnn_why.restype = ctypes.c_char_p
        self.cudnn = opened(cudnn.encode() if wanted else b"", nvrtc.encode())
        if self.cudnn:
            self.cudnn_partly(torch)
        else:
            why = self.lib.vplan_null_cudnn_why().decode("utf-8", "replace") if wanted else "--cudnn off"
            self.cudnn_off(torch)
            self.note("cudnn", "cuDNN is off, its attention included (%s): PyTorch's own kernels run" % why)

    def cudnn_off(self, torch):
        C = torch._C
        C._set_cudnn_enabled(False)
        C._set_cudnn_enabled = lambda on: None
        try:
            backend = type(torch.backends.cudnn)
            backend.enabled = property(lambda s: C._get_cudnn_enabled(), lambda s, on: None)
        except (AttributeError, TypeError):
            pass
        if hasattr(C, "_set_sdp_use_cudnn"):
            C._set_sdp_use_cudnn(False)
            C._set_sdp_use_cudnn = lambda on: None

    def cudnn_partly(self, torch):
        """What cuDNN answers only through a handle on a real device keeps PyTorch's own path."""
        aten = torch.ops.aten
        torch.backends.cudnn.is_acceptable = lambda tensor: False

        def batch_norm(x, weight, bias, mean, var, training, momentum, eps):
            self.norms += 1
            out = aten.native_batch_norm(x, weight, bias, mean, var, training, momentum, eps)
            return (*out, torch.empty(0, dtype=torch.uint8, device=x.device))

        def batch_norm_backward(x, grad, weight, mean, var, save_mean, save_var, eps, reserve):
            return aten.native_batch_norm_backward(grad, x, weight, mean, var, save_mean, save_var, True, eps,
                                                   [True, True, True])
        self.override("cudnn_is_acceptable", lambda tensor: False)
        self.override("cudnn_batch_norm", batch_norm)
        self.override("cudnn_batch_norm_backward", batch_norm_backward)
        self.override("_use_cudnn_ctc_loss", lambda *a, **kw: False)
        self.override("_use_cudnn_ctc_loss.Tensor", lambda *a, **kw: False)

    def override(self, name, kernel):
        """Replace an operator's kernel for CUDA tensors."""
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")        # that a kernel is overridden is what is meant
            if self.library is None:
                self.library = self.torch.library.Library("aten", "IMPL", "CUDA")
            try:
                self.library.impl(name, kernel, allow_override=True)
            except TypeError:                      # older: always allowed
                self.library.impl(name, kernel)

    def note_cudnn(self):
        """What the report says of cuDNN once the run is over."""
        count = self.counters()
        if not self.cudnn:
            return
        version = "%d.%d.%d" % (self.cudnn // 10000, self.cudnn // 100 % 100, self.cudnn % 100)
        if count["n_cudnn_plan"]:
            self.notes["cudnn"] = (
                "cuDNN %s checked %d plans and gave their workspaces (the largest %d bytes) from a description of the "
                "card, not from a card; clocks in it are assumed" % (
                    version, count["n_cudnn_plan"], count["cudnn_workspace_peak"]))
            if self.torch.backends.cudnn.benchmark:
                self.notes["cudnn_benchmark"] = ("cudnn.benchmark times cuDNN's candidates; here they all take no "
                                                 "time, so another one may be kept than on a GPU")
        if count["n_cudnn_refused"]:
            self.notes["cudnn_refused"] = ("cuDNN left out engines that ask a real device %d times; on a GPU it may "
                                           "choose one of them" % count["n_cudnn_refused"])
        if self.norms:
            self.notes["cudnn_norm"] = (
                "batch norms ran PyTorch's own path (%d calls): cuDNN's workspace and reserve are not known without "
                "a device" % self.norms)

    def on_cuda(self):
        """Runs inside CUDA's lazy initialisation."""
        try:
            if self.want_owners:
                self.record(True)
            self.torch._C._cuda_attach_out_of_memory_observer(self.on_oom)
        except Exception as e:
            self.note("history", "the allocator's history could not be recorded (%s): no owners" % e)

    def record(self, on):
        """The allocator's history costs about 2 us an allocation: it is on while a peak is new."""
        record = self.torch.cuda.memory._record_memory_history
        if on:
            # No frames for frees: gathering them while an exception unwinds loses that exception (2.11.0,
            # seen with checkpointing's early stop), and nothing here needs them.
            record("all", context="alloc", stacks="python", max_entries=HISTORY_ENTRIES)
        else:
            record(None)
        self.recording = on

    # ---- the script's own view of the statistics ---------------------------------------------------------

    def stats_for_script(self, device):
        stats = self.raw_stats(device)
        if device == 0:
            for (name, pool), peak in list(self.kept.items()) + list(self.kept_aside.items()):
                entry = stats.get(name)
                if isinstance(entry, dict) and pool in entry and entry[pool]["peak"] < peak:
                    entry[pool]["peak"] = peak
        return stats

    def reset_for_script(self, device):
        if device == 0 and self.ready():
            self.take(self.phase)      # what the script is about to forget still belongs to the run
            self.kept.clear()
            self.kept_aside.clear()
        return self.raw_reset(device)

    def ready(self):
        return self.lib is not None and self.torch.cuda.is_initialized() and os.getpid() == self.pid

    def take(self, phase):
        """Add the peaks since the last call to a phase, and begin to count anew. Returns the
        allocation counter."""
        stats = self.raw_stats(0)
        kept = self.kept_aside if self.recording_program else self.kept
        for name, entry in stats.items():
            if isinstance(entry, dict):
                for pool, value in entry.items():
                    if isinstance(value, dict) and isinstance(value.get("peak"), int):
                        peak = value["peak"]
                        if peak > kept.get((name, pool), -1):
                            kept[(name, pool)] = peak
        a = stats["allocated_bytes"]["all"]
        r = stats["reserved_bytes"]["all"]
        q = stats["requested_bytes"]["all"]
        n = stats["allocation"]["all"]["allocated"]
        self.raw_reset(0)
        row = [a["peak"], r["peak"], q["peak"], a["current"], r["current"]]
        if self.recording_program:         # the recorder's own references may be in them
            self.aside.append((phase, row, n))
        else:
            self.add_peaks(phase, row, n)
        return n

    def add_peaks(self, phase, new, n):
        """Peaks of a phase, noticed when so many allocations had been."""
        row = self.phases.get(phase)
        if row is None:
            row = self.phases[phase] = [0, 0, 0, 0, 0]
            self.order.append(phase)
        row[:] = [max(row[i], new[i]) for i in range(3)] + new[3:]
        if new[0] > self.peak:
            self.peak = new[0]
            self.peak_phase = phase
            self.peak_at = n

    def enter(self, phase, kind=None):
        """kind: what is done in it, where the phase's name does not say it."""
        if phase == self.phase:
            if kind and kind != self.kind and self.recording and self.ready():
                self.mark(self.raw_stats(0)["allocation"]["all"]["allocated"], phase, kind)
            self.kind = kind
            return
        self.kind = kind
        if self.ready():
            n = self.take(self.phase)
            self.mark(n, phase, kind)
            if self.peak > self.analysed_peak:
                if not self.recording:
                    self.rearm = True
                elif n - self.peak_at > HISTORY_ENTRIES // 6:
                    self.analyse()
        self.phase = phase

    def name(self, kind):
        return "%s%d" % (kind, self.k) if self.k <= 2 else "steady"

    # ---- phases --------------------------------------------------------------------------------------------

    def hook_modules(self, torch):
        Module = torch.nn.Module
        plain = Module.__call__
        local = self.local
        local.depth = 0
        probe = self

        def __call__(module, *args, **kwargs):
            if getattr(local, "depth", 0):
                return plain(module, *args, **kwargs)
            local.depth = 1
            try:
                probe.on_root(module, args, kwargs)
                return plain(module, *args, **kwargs)
            finally:
                local.depth = 0
        __call__.__wrapped__ = plain
        Module.__call__ = __call__

    def on_root(self, module, args=(), kwargs={}):
        if self.backward_depth or threading.get_ident() != self.main:
            return
        if self.step_depth and not (module.training and self.torch.is_grad_enabled()):
            return                     # inside a step only a closure's own forward is a phase
        key = id(module)
        if key not in self.seen_roots:
            if next(module.parameters(), None) is None:
                return                 # a loss, an activation: belongs to what is under way
            self.seen_roots.add(key)
            self.roots.add(module)
            self.look_at(module)
        training = module.training and self.torch.is_grad_enabled()
        phase = self.phase
        if training and self.recording_program:
            self.count_samples(args, kwargs)
        if training:
            if self.stepped:
                self.stepped = False
                self.k += 1
            self.enter(self.name("forward"), "forward")
        elif phase in ("load", "other", "eval", "save"):
            self.enter("eval")

    def look_at(self, module):
        """Modules whose GPU memory depends on cuDNN where it is not asked."""
        nn = self.torch.nn
        convs = sum(isinstance(m, nn.modules.conv._ConvNd) for m in module.modules())
        rnns = sum(isinstance(m, nn.RNNBase) for m in module.modules())
        if convs and not self.cudnn:
            self.note("conv", "%d convolutions ran PyTorch's own path; on a GPU cuDNN runs them with other "
                      "workspaces" % convs)
        if rnns:
            self.note("rnn", "%d recurrent layers ran PyTorch's own path; on a GPU cuDNN runs them with "
                      "other workspaces" % rnns)

    def hook_backward(self, torch):
        import torch.autograd
        import torch.autograd.graph
        plain = torch.autograd.graph._engine_run_backward
        probe = self

        def run_backward(*args, **kwargs):
            probe.backward_depth += 1
            if probe.backward_depth == 1:
                if probe.stepped:
                    probe.stepped = False
                    probe.k += 1
                probe.enter(probe.name("backward"), "backward")
            try:
                return plain(*args, **kwargs)
            finally:
                probe.backward_depth -= 1
                if probe.backward_depth == 0:
                    if probe.step_depth:
                        probe.enter(probe.name("step"), "step")
                    else:
                        probe.enter("gap")
        torch.autograd.graph._engine_run_backward = run_backward
        torch.autograd._engine_run_backward = run_backward

    def on_step_begin(self, optimizer, args, kwargs):
        self.step_depth += 1
        if self.step_depth == 1 and self.ready():
            self.enter(self.name("step"), "step")
            self.mark_optimizer(True)
            self.optimizers.add(optimizer)
            try:
                n = self.raw_stats(0)["allocation"]["all"]["allocated"] if self.k <= 2 else self.marks_at[-1]
                self.grads.append((n, frozenset(
                    address_of(p.grad) for g in optimizer.param_groups for p in g["params"]
                    if p.grad is not None)))
                del self.grads[:-6]
            except Exception:
                pass

    def on_step_end(self, optimizer, args, kwargs):
        self.step_depth = max(0, self.step_depth - 1)
        if self.step_depth == 0 and self.ready():
            self.mark_optimizer(False)
            self.stepped = True
            self.enter("other")
            self.stepped_by(optimizer)

    def finish_step(self, optimizer):
        """The weights are those of the next step."""
        self.total_steps += 1
        self.after_step()
        if self.recording and self.total_steps >= self.steps_to_record() and not self.want_snapshot:
            if self.peak > self.analysed_peak:
                self.analyse()
            self.record(False)
        elif self.want_owners and self.rearm and not self.recording and self.n_analyses < 6:
            self.record(True)          # the next step shows who is behind the new peak
        self.rearm = False
        now = time.time()
        if self.k <= 2 or now - self.written_at > 2.0:
            self.write()
        self.count_step(optimizer)

    def saving(self, plain):
        def save(*args, **kwargs):
            outer, kind = self.phase, self.kind
            self.save_depth += 1
            if self.save_depth == 1:
                self.enter("save")
            try:
                return plain(*args, **kwargs)
            finally:
                self.save_depth -= 1
                if self.save_depth == 0:
                    self.enter(outer, kind)
        save.__name__ = getattr(plain, "__name__", "save")
        save.__doc__ = plain.__doc__
        save.__wrapped__ = plain
        return save

    def on_transformers(self, module):
        kind = getattr(module, "PreTrainedModel", None)
        if kind is not None and "save_pretrained" in vars(kind):
            kind.save_pretrained = self.saving(kind.save_pretrained)

    # ---- owners ---------------------------------------------------------------------------------------------

    def on_oom(self, device, alloc, device_alloc, device_free):
        if os.getpid() != self.pid:
            return
        try:
            stats = self.raw_stats(0)
            self.oom = {"requested_bytes": int(alloc), "phase": self.phase, "where": self.where(),
                        "allocated_bytes": stats["allocated_bytes"]["all"]["current"],
                        "reserved_bytes": stats["reserved_bytes"]["all"]["current"]}
            self.take(self.phase)
            self.analyse()
            if self.want_snapshot and not self.snapshot_taken:
                self.dump_snapshot()
        except Exception as e:
            self.note("oom", "the state at the failure could not be read: %s" % e)

    def dump_snapshot(self):
        torch = self.torch
        path = os.path.join(self.folder, "snapshot.%d" % self.pid)
        torch.cuda.memory._dump_snapshot(path + ".tmp")
        os.rename(path + ".tmp", path)
        self.snapshot_taken = True

    def note_no_step(self):
        if not self.total_steps and self.error is None and self.oom is None and any(p.startswith("backward") for p in self.phases):
            self.note("step", "gradients were computed and no optimizer stepped, so that its states are in no peak: a script that asks a value "
                      "of the device first may have found it zero")

    # ---- the report -----------------------------------------------------------------------------------------

    def after_fork(self):
        self.dead = True

    def begin_run(self):
        """In a fork that is a run of its own: it has imported, and nothing else."""
        self.pid, self.dead = os.getpid(), False
        self.folder = os.environ["VPLAN_NULL_REPORT"]
        self.run_began = float(os.environ.get("VPLAN_NULL_BEGAN") or 0)
        self.started = time.time()
        kept = self.keep_allocator_setting() if self.torch is not None else None
        if kept:
            os.rename(kept, os.path.join(self.folder, "allocator_read.%d" % self.pid))

    def finish(self):
        if self.dead or os.getpid() != self.pid:
            return
        try:
            if self.only_arguments() and getattr(sys, "last_value", None) is not None:
                self.on_exception(type(sys.last_value), sys.last_value)
            if self.lib is not None and hasattr(self.lib, "vplan_null_over"):
                self.lib.vplan_null_over()
            self.note_untimed()
            self.note_no_step()
            self.remove_without_weights()
            if self.ready() and (self.error is None or self.error["type"] != "unsupported"):
                self.end_program()
                self.take(self.phase)
                if self.peak > self.analysed_peak and self.oom is None:
                    self.analyse()
                if self.want_snapshot and not self.snapshot_taken:
                    self.dump_snapshot()
                workspace = self.cublas_addresses()
                if workspace:
                    self.live_at_peak = [
                        (a, s, "cublas_workspace" if a in workspace else k, p, f)
                        for a, s, k, p, f in self.live_at_peak]
            self.write(final=True)
        except Exception as e:
            sys.stderr.write("vplan dryrun: the report is incomplete: %s: %s\n" % (type(e).__name__, e))
            try:
                self.write(final=True)
            except Exception:
                pass
        self.dead = True
        self.leave_ranks()

    def write(self, final=False):
        self.written_at = time.time()
        self.note_cudnn()
        owners, kinds = {}, {}
        for _, size, kind, phase, frame in self.live_at_peak:
            key = (kind, phase, frame)
            entry = owners.setdefault(key, [0, 0])
            entry[0] += size
            entry[1] += 1
            kinds[kind] = kinds.get(kind, 0) + size
        rows = sorted(owners.items(), key=lambda x: (-x[1][0], x[0]))
        phases = {}
        for name in self.order:
            row = self.phases[name]
            shown = self.shown(name)
            if shown in phases:
                old = phases[shown]
                phases[shown] = [max(old[0], row[0]), max(old[1], row[1]), max(old[2], row[2]), row[3], row[4]]
            else:
                phases[shown] = list(row)
        cuda = self.lib is not None and self.torch.cuda.is_initialized()
        report = {
            "pid": self.pid, "rank": self.rank, "argv": [str(a) for a in getattr(sys, "argv", [])][:64], "final": final,
            "python": sys.version.split()[0], "torch": self.version,
            "cuda": bool(cuda), "seconds": time.time() - self.started, "optimizer_steps": self.total_steps,
            "allocated_peak_bytes": max([r[0] for r in self.phases.values()] or [0]),
            "reserved_peak_bytes": max([r[1] for r in self.phases.values()] or [0]),
            "requested_peak_bytes": max([r[2] for r in self.phases.values()] or [0]),
            "peak_phase": self.shown(self.peak_phase),
            "phases": [{"name": n, "allocated_bytes": r[0], "reserved_bytes": r[1], "requested_bytes": r[2],
                        "allocated_after_bytes": r[3], "reserved_after_bytes": r[4]}
                       for n, r in phases.items()],
            "owners": [{"kind": k, "phase": p, "frame": f, "bytes": v[0], "n_tensors": v[1]}
                       for (k, p, f), v in rows[:OWNERS_MAX]],
            "owners_rest_bytes": sum(v[0] for _, v in rows[OWNERS_MAX:]),
            "kinds": dict(sorted(kinds.items(), key=lambda x: -x[1])),
            "owners_requested_bytes": self.owners_requested,
            "oom": self.oom, "error": self.error, "cut": self.cut, "arguments": self.arguments,
            "program": self.program, "growth": self.growth(),
            "reads": [{"where": w, "n": v[0], "bytes": v[1], "phase": self.shown(v[2])}
                      for w, v in sorted(self.reads.items(), key=lambda x: -x[1][0])],
            "selections": [{"where": w, "n": v[0], "elements": v[1]}
                           for w, v in sorted(self.selections.items(), key=lambda x: -x[1][1])[:READS_MAX]],
            "reads_lost": self.reads_lost, "notes": [self.notes[k] for k in sorted(self.notes)],
            "counters": self.counters(),
        }
        path = os.path.join(self.folder, "report.%d.json" % self.pid)
        with open(path + ".tmp", "w") as f:
            json.dump(report, f)
        os.rename(path + ".tmp", path)


def _cuda_libraries(torch):
    """The cuDNN that this PyTorch would load, in its loader's order, and the NVRTC that cuDNN would; "" for none."""
    here = os.path.dirname(os.path.abspath(torch.__file__))
    wheels = os.path.join(os.path.dirname(here), "nvidia")
    major = str(torch.version.cuda).split(".")[0]
    common = [os.path.join(here, "lib")]
    common += [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    common += [os.path.join(sys.prefix, "lib"), "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]

    def find(folders, name):
        for folder in folders:
            path = os.path.join(folder, name)
            if os.path.exists(path) and not os.path.exists(os.path.join(folder, "libvplan-null.so")):
                return path
        return ""
    cudnn = find([os.path.join(wheels, "cudnn", "lib")] + common, "libcudnn.so.9")
    folders = [os.path.dirname(os.path.realpath(cudnn))] if cudnn else []
    folders += [os.path.join(wheels, "cu" + major, "lib"), os.path.join(wheels, "cuda_nvrtc", "lib")] + common
    nvrtc = find(folders, "libnvrtc.so." + major) or find(folders, "libnvrtc.so.13") or find(folders, "libnvrtc.so.12")
    return cudnn, nvrtc

# dryrun/probe/vplan_program.py: the part of the probe that records the program of one steady optimizer step: what PyTorch ran,
# in order, with the bytes its tensors have and the kernels, products and copies the stand-in saw meanwhile.
#
# One TorchDispatchMode over one step, after the steps whose peaks are reported: its peaks are not taken. Products come
# from the stand-in (the calls of cuBLAS), attention and convolutions from the shapes their operators get.
import ctypes
import sys
from collections.abc import Mapping

from vplan_kernels import BY_OPERATOR
from vplan_modules import Modules
from vplan_reuse import Reuse

PRODUCT, VECTOR, TO_DEVICE, FROM_DEVICE, ON_DEVICE, SYNC, RECORD, AWAIT, COLLECTIVE = 1, 2, 3, 4, 5, 6, 7, 8, 9
SYNC_ALL, SYNC_STREAM, SYNC_EVENT = 0, 1, 2
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send", "recv")
SEQUENCE_MAX = 100000
RATES = {0: "fp32", 1: "fp64", 2: "fp16", 14: "bf16", 3: "int8", 28: "fp8", 29: "fp8", 4: "fp32", 5: "fp64"}
TF32 = (77,)
# What these read of their largest input is what they give, not all of it.
GATHERS = frozenset(("embedding", "index_select", "index", "gather", "nll_loss_forward", "nll_loss2d_forward", "take"))
SCATTERS = frozenset(("index_put_", "_index_put_impl_", "index_add_", "scatter_add_", "scatter_", "index_copy_"))
OVERWRITES = frozenset(("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "_foreach_zero_", "_foreach_copy_"))
ATTENTION = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
             "_scaled_dot_product_cudnn_attention", "_flash_attention_forward", "_efficient_attention_forward")
ATTENTION_BACKWARD = tuple(
    n.replace("_forward", "") + "_backward" for n in ATTENTION)
# Copies that the dispatcher sees as such. What other operators copy are the addresses and sizes that their kernels read, or a value they wait for.
COPIES = frozenset(("copy_", "_to_copy", "_foreach_copy_", "lift_fresh", "_local_scalar_dense"))
CONVOLUTION = ("convolution", "_convolution", "cudnn_convolution", "convolution_overrideable")


class Entry(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("type", ctypes.c_int32), ("compute", ctypes.c_int32), ("pad", ctypes.c_int32),
                ("m", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64), ("batch", ctypes.c_int64)]


class Program:
    """Of Probe, which has lib, torch and counters()."""

    def init_program(self):
        self.recording_program = False
        self.program = None
        self.aside, self.kept_aside = [], {}      # peaks while a step is recorded: its phases', and as the script sees them
        self.init_kernels()

    def start_program(self):
        torch, lib = self.torch, self.lib
        if self.recording_program or self.program is not None or not self.ready():
            return
        try:
            from torch.utils._python_dispatch import TorchDispatchMode
        except ImportError:
            self.note("program", "this PyTorch cannot record a program")
            return
        if self.compiled() and not hasattr(torch._C._dynamo.guards, "set_is_in_mode_without_ignore_compile_internals"):
            self.note("program", "no seconds: a compiled model would be compiled anew by torch %s while its step is recorded; by 2.11 it is not"
                      % self.version)
            return
        lib.vplan_null_record.restype = ctypes.POINTER(Entry)
        lib.vplan_null_recorded.restype = ctypes.c_uint64
        self.entries = lib.vplan_null_record(1)
        counted = lib.vplan_null_counters()
        recorded = lib.vplan_null_recorded
        rec = self.recorder = Recorder(self, counted, recorded)

        class Mode(TorchDispatchMode):
            """Code that torch.compile has made runs as it does without: to Dynamo this mode is one of PyTorch's own."""
            is_infra_mode = ignore_compile_internals = classmethod(lambda cls: True)

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func is not torch.ops.aten.lift_fresh.default:
                    rec.between()      # torch.tensor() copies first and tells the dispatcher then
                func, args = rec.without_mode(func, args)
                out = func(*args, **(kwargs or {}))
                rec.op(func, args, kwargs or {}, out)
                return out
        self.take(self.phase)
        self.compiled_frames, self.compiled_kernels = self.compiled(), self.n_compiled_kernels
        if not self.compiled_frames:   # a hook on modules would be another program to Dynamo
            rec.modules.begin()
        self.mode = Mode()
        self.mode.__enter__()
        self.recording_program = True
        self.program_samples = self.program_tokens = 0

    def stop_program(self):
        self.aside, self.kept_aside = [], {}
        self.recorder.between()
        self.recorder.modules.end()
        self.recording_program = False
        self.lib.vplan_null_record(0)
        try:
            self.mode.__exit__(None, None, None)
        except Exception as e:
            self.note("program", "no program was recorded: %s" % e)
            return
        self.raw_reset(0)              # the peaks of this step are the recorder's too
        rec = self.recorder
        if self.not_seen():
            self.note("program", "no seconds: %s" % self.not_seen())
            return
        if self.compiled_frames:
            self.note("compiled", "seconds of compiled code are those of the kernels that torch.compile made, by the bytes of the tensors they "
                      "are handed; which module they are of is not known")
        self.program = {
            "rows": [list(row) for row in rec.rows], "sequence": rec.sequence, "modules": rec.modules.names,
            "module_of": rec.module_of, "optimizer": rec.optimizer, "complete": not rec.lost,
            "samples": self.program_samples, "tokens": self.program_tokens, "products_flop": rec.products_flop, "vector_flop": rec.vector_flop,
            "attention_flop": rec.attention_flop, "convolution_flop": rec.convolution_flop,
            "copies_inside_to_bytes": rec.inside_to, "copies_inside_from_bytes": rec.inside_from,
            "launches": rec.launches, "copies_to_bytes": rec.copied[TO_DEVICE],
            "copies_from_bytes": rec.copied[FROM_DEVICE], "copies_on_bytes": rec.copied[ON_DEVICE]}

    def end_program(self):
        """No step came that could be recorded: what followed training instead belongs to the run."""
        if self.recording_program:
            self.take(self.phase)
            self.recording_program = False
            self.lib.vplan_null_record(0)
            for row in self.aside:
                self.add_peaks(*row)

    def note_untimed(self):
        """Where seconds were asked for and the command ended before the step that is timed."""
        if self.want_program and self.program is None and self.total_steps and self.error is None and self.oom is None:
            self.note("program", "no seconds: the step that is timed is the one after %d, and the command did %d; let it do more"
                      % (self.steps_wanted or 3, self.steps_done))

    def mark_optimizer(self, begins):
        """Where in the sequence an optimizer's step begins and ends: what does not come with each micro-step."""
        if self.recording_program:
            self.recorder.between()
            marks = self.recorder.optimizer
            if begins:
                marks.append([len(self.recorder.sequence)] * 2)
            elif marks:
                marks[-1][1] = len(self.recorder.sequence)

    def compiled(self):
        """How many frames torch.compile has compiled."""
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
        return int(counters.get("frames", {}).get("ok", 0))

    def not_seen(self):
        """Why the recorded step is not the program that a later one is; "": it is."""
        if self.compiled() != self.compiled_frames:
            return "torch.compile compiled in the step that is timed, as its shapes were new: let more steps come before it (--steps)"
        if self.compiled_kernels and self.compiled_kernels == self.n_compiled_kernels:
            return "what torch.compile has made did not run in the step that is timed"
        return "what the script's own CUDA graphs run is not seen as they are replayed" if self.recorder.replays else ""

    def count_samples(self, args, kwargs):
        """The batch dimension of a training forward; of rows of integers also how many there are: tokens. Of a dictionary that of
        what has most dimensions, pictures beside their boxes; of a list of pictures how many it has."""
        for value in list(args) + list(kwargs.values()):
            if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
                value = value[0]               # texts of a pair, of which each is a batch
            if isinstance(value, Mapping):
                value = max((v for v in value.values() if isinstance(v, self.torch.Tensor)), key=lambda v: v.dim(), default=None)
            elif isinstance(value, (list, tuple)) and value and all(isinstance(v, self.torch.Tensor) and v.dim() == 3 for v in value):
                self.program_samples += len(value)
                return
            if isinstance(value, self.torch.Tensor) and value.dim():
                self.program_samples += int(value.shape[0])
                if value.dim() == 2 and not value.is_floating_point():
                    self.program_tokens += value.numel()
                return


class Recorder:
    def __init__(self, probe, counted, recorded):
        self.torch = probe.torch
        self.entries, self.counted, self.recorded = probe.entries, counted, recorded
        self.rows, self.index, self.sequence, self.optimizer = [], {}, [], []
        self.modules, self.module_of = Modules(probe), []      # one of their names for each of the sequence
        self.lost, self.replays = False, 0
        self.issued = BY_OPERATOR
        self.products_flop = self.vector_flop = self.attention_flop = self.convolution_flop = 0
        self.copied = {TO_DEVICE: 0, FROM_DEVICE: 0, ON_DEVICE: 0}
        self.launches = self.inside_to = self.inside_from = 0
        self.schemas = {}
        self.reuse = Reuse()
        self.streams, self.handles = {}, {}      # of the stand-in's pointers: 0, 1, 2...
        self.raw_stream = getattr(self.torch._C, "_cuda_getCurrentRawStream", None)
        self.stream()                            # the first of them
        self.launch_at = int(counted[4])
        self.entry_at = int(recorded())

    def without_mode(self, func, args):
        """The gradient of x[indices] is written in place, its indices unchecked; while a mode is on, PyTorch checks and copies."""
        aten, node = self.torch.ops.aten, getattr(self.torch._C, "_current_autograd_node", None)
        if func is aten.index_put.default and node and node() is not None and node().name() == "IndexBackward0" and len(args) == 4:
            return aten._index_put_impl_.default, tuple(args) + (True,)
        return func, args

    def stream(self):
        """The number of the stream that this thread issues to."""
        return self.number_of(self.streams, self.raw_stream(0) if self.raw_stream else 0)

    def number_of(self, known, pointer):
        return known.setdefault(pointer, len(known))

    def order(self, e):
        """A row of what orders streams, or of a collective: its name, numbers and stream."""
        if e.kind == COLLECTIVE:
            return "nccl:" + COLLECTIVES[e.type], 1, e.m, (e.compute,), self.number_of(self.streams, e.n)
        if e.kind == SYNC:
            which = self.number_of(self.handles, e.m) if e.type == SYNC_EVENT else \
                self.number_of(self.streams, e.m) if e.type == SYNC_STREAM else 0
            return "(synchronize)", 0, 0, (e.type, which), self.stream()
        name = "(record)" if e.kind == RECORD else "(await)"
        return name, 0, 0, (self.number_of(self.handles, e.m),), self.number_of(self.streams, e.n)

    def events(self):
        """What the stand-in saw since it was last asked: launches, products' flop and rate, copied bytes, whether the
        host waited for what it issues to, the shape of the largest product; and rows of what orders streams."""
        launch, entry = int(self.counted[4]), int(self.recorded())
        n, self.launch_at = launch - self.launch_at, launch
        self.launches += n
        flop, rate, to, back, wait, largest, shape = 0, "", 0, 0, 0, 0, ()
        ordered = []
        for i in range(self.entry_at, entry):
            e = self.entries[i]
            if e.kind in (PRODUCT, VECTOR):
                f = 2 * e.m * e.n * e.k * e.batch * (4 if e.type in (4, 5) else 1)
                flop += f
                if f > largest:
                    largest, shape = f, (e.m, e.n, e.k, e.batch)
                rate = "tf32" if e.compute in TF32 and e.type == 0 else RATES.get(e.type, "fp32")
                if e.kind == PRODUCT:
                    self.products_flop += f
                else:
                    self.vector_flop += f
            elif e.kind == SYNC and e.type == SYNC_STREAM and self.number_of(self.streams, e.m) == self.stream():
                wait = 1
            elif e.kind >= SYNC:
                n -= e.kind == COLLECTIVE
                ordered.append(self.order(e))
            else:
                self.copied[e.kind] += e.m
                if e.kind == TO_DEVICE:
                    to += e.m
                elif e.kind == FROM_DEVICE:
                    back += e.m
                    wait = 1
        self.entry_at = entry
        return max(n, 0), flop, rate, to, back, wait, shape, ordered

    def add(self, row, issued=BY_OPERATOR, near=()):
        row += (max(issued, self.issued), near)
        at = self.index.get(row)
        if at is None:
            at = self.index[row] = len(self.rows)
            self.rows.append(row)
        if len(self.sequence) < SEQUENCE_MAX:
            self.sequence.append(at)
            self.module_of.append(self.modules.now())
        else:
            self.lost = True

    def add_ordered(self, ordered):
        for name, n, n_bytes, shape, stream in ordered:
            self.add((name, n, n_bytes, 0, 0, "", 0, 0, 0, shape, stream))

    def between(self):
        """Kernels that no operator accounts for: libraries that launch by themselves. Their bytes are not known."""
        n, flop, rate, to, back, wait, shape, ordered = self.events()
        if n or flop or to or back or wait:
            self.inside_to, self.inside_from = self.inside_to + to, self.inside_from + back
            self.add(("(outside operators)", n, 0, flop, flop, rate, to, back, wait, shape, self.stream()))
        self.add_ordered(ordered)

    def op(self, func, args, kwargs, out):
        n, flop, rate, to, back, wait, shape, ordered = self.events()
        if not (n or flop or to or back or wait):
            self.add_ordered(ordered)
            return                     # a view, of host tensors, or a collective
        name = func.__name__.split(".")[0]
        work = flop
        if name in ATTENTION or name in ATTENTION_BACKWARD:
            flop, rate, keys, width = self.attention(name, args, kwargs)
            self.attention_flop += flop
            causal = bool(kwargs.get("is_causal", False) or self.argument(func, args, "is_causal"))
            work = flop // 2 if causal else flop
            shape = (keys / 2 if causal else keys, width, int(causal))
        elif name in CONVOLUTION:
            f, rate = self.convolution(args, out)
            self.convolution_flop += f
            flop = work = flop + f
        elif name == "convolution_backward":
            f, rate = self.convolution_backward(args, out)
            self.convolution_flop += f
            flop = work = flop + f
        if name in COPIES and (to or back):
            n_bytes, near = 0, ()
        else:
            n_bytes, reads, writes = self.moved(func, name, args, kwargs, out)
            near = self.reuse.operator(reads, writes, n_bytes)
            self.inside_to, self.inside_from = self.inside_to + to, self.inside_from + back
        self.add((name, n, n_bytes, flop, work, rate, to, back, wait, shape, self.stream()), near=near)
        self.add_ordered(ordered)

    def kernel(self, name, reads, writes, issued):
        """One that no operator has launched, but which is seen."""
        n, flop, rate, to, back, wait, shape, ordered = self.events()
        if n:
            n_bytes = total(reads) + total(writes)
            near = self.reuse.operator(reads, writes, n_bytes)
            self.add((name, n, n_bytes, 0, 0, "", 0, 0, 0, (), self.stream()), issued, near)
        self.add_ordered(ordered)

    def argument(self, func, args, name):
        for i, a in enumerate(func._schema.arguments):
            if a.name == name:
                return args[i] if i < len(args) else None
        return None

    def size(self, t):
        t = getattr(t, "_local_tensor", t)
        if not t.is_cuda:
            return 0
        n = t.numel() * t.element_size()
        if n and 0 in t.stride():
            try:
                return min(n, t.untyped_storage().nbytes())
            except Exception:
                return n
        return n

    def ranges(self, value, integers_only=False):
        """Where the tensors of an argument lie: (address, bytes); address 0 of one that is made of others, whose own place nobody says."""
        if isinstance(value, self.torch.Tensor):
            n = 0 if integers_only and value.is_floating_point() else self.size(value)
            try:
                return [(getattr(value, "_local_tensor", value).data_ptr(), n)] if n else []
            except RuntimeError:
                return [(0, n)]
        if isinstance(value, (list, tuple)):
            return [r for v in value for r in self.ranges(v, integers_only)]
        return []

    def moved(self, func, name, args, kwargs, out):
        """Bytes read and written, each tensor once, and where: an approximation, which ignores second passes. Of gathers and scatters nobody knows
        which rows they touch."""
        schema = self.schemas.get(func)
        if schema is None:
            schema = self.schemas[func] = [
                (a.name, bool(a.alias_info and a.alias_info.is_write), bool(getattr(a, "is_out", False))) for a in func._schema.arguments]
        if name in GATHERS:
            reads, writes = self.ranges(args, integers_only=True), self.ranges(out)
            return total(reads) + 2 * total(writes), reads, writes
        if name in SCATTERS:
            rows = self.ranges([a for a in args[1:] if isinstance(a, self.torch.Tensor) and a.is_floating_point()])
            return total(self.ranges(args[1:], integers_only=True)) + 3 * total(rows), [], []
        reads, writes = [], []
        for i, (argument, is_written, only) in enumerate(schema):
            there = self.ranges(args[i] if i < len(args) else kwargs.get(argument))
            if is_written:
                writes += there
            if not is_written or (not only and name not in OVERWRITES):
                reads += there
        if not writes:
            writes = self.ranges(out)
        return total(reads) + total(writes), reads, writes

    # ---- products that are no call of cuBLAS ----------------------------------------------------------------

    def rate_of(self, t):
        return {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float64": "fp64"}.get(str(t.dtype), "fp32")

    def attention(self, name, args, kwargs):
        """b h sq sk (dq + dv) products forward; backward those of the gradients and the scores again."""
        backward = name in ATTENTION_BACKWARD
        q, k, v = args[1:4] if backward else args[:3]
        if name.startswith("_scaled"):
            b, h, sq, dq = q.shape
            sk, dv = k.shape[2], v.shape[3]
        else:                          # (batch, sequence, heads, dim)
            b, sq, h, dq = q.shape
            sk, dv = k.shape[1], v.shape[3]
        n = 2 * b * h * sq * sk
        return n * (3 * dq + 2 * dv) if backward else n * (dq + dv), self.rate_of(q), sk, dq

    def convolution(self, args, out):
        x, w = args[0], args[1]
        transposed = bool(args[6]) if len(args) > 6 and not isinstance(args[6], (list, tuple)) else False
        shape = x.shape if transposed else out.shape
        n = shape[0]
        for d in shape[2:]:
            n *= d
        for d in w.shape:
            n *= d
        return 2 * n, self.rate_of(x)

    def convolution_backward(self, args, out):
        """The gradient of the input and that of the weight are products of the same size each."""
        grad, x, w = args[0], args[1], args[2]
        transposed = bool(args[7])
        shape = x.shape if transposed else grad.shape
        n = 2 * shape[0]
        for d in shape[2:]:
            n *= d
        for d in w.shape:
            n *= d
        asked = args[10]
        return n * (bool(asked[0]) + bool(asked[1])), self.rate_of(x)


def total(ranges):
    return sum(n for _, n in ranges)

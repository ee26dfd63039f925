# dryrun/probe/vplan_kernels.py: the part of the probe that records Triton's kernels in the step whose program is recorded: no operator launches
# them, so no dispatch mode sees them. Their bytes are those of the tensors that they are handed.
#
#     Inductor's        what torch.compile has fused: element-wise work, norms, losses, bound by memory
#     other people's    Liger's and the like: what they compute is not known
# What a CUDA graph runs is seen by nobody as it is replayed. Inductor's own (reduce-overhead) are run once without their graph instead.
import threading

BY_OPERATOR, BY_COMPILED, IN_GRAPH = 0, 1, 2       # what issues a kernel


class Kernels:
    """Of Probe, which has recording_program and recorder."""

    def init_kernels(self):
        self.n_compiled_kernels = 0
        self.kernel_local = threading.local()

    def on_inductor(self, module):
        """torch._inductor.runtime.triton_heuristics."""
        kind, probe = getattr(module, "CachingAutotuner", None), self
        plain = getattr(kind, "run", None)
        if plain is None:
            return

        def run(tuner, *args, **kwargs):
            probe.n_compiled_kernels += 1

            def described():
                meta = tuner.inductor_meta
                name = str(meta.get("kernel_name") or tuner.fn.__name__)
                known = not name.startswith("triton_tem")        # a template: products or attention
                reads, writes = fused(list(tuner.triton_meta.get("signature", ())), args, meta.get("mutated_arg_names") or ())
                return ("triton:%s" if known else "(kernel %s)") % name, reads, writes, BY_COMPILED
            return probe.launching(plain, tuner, args, kwargs, described)
        kind.run = run

    def on_triton(self, module):
        """triton.runtime.jit."""
        kind, probe = getattr(module, "JITFunction", None), self
        plain = getattr(kind, "run", None)
        if plain is None:
            return

        def run(function, *args, **kwargs):
            def described():
                there = [(a.data_ptr(), tensor_bytes(a)) for a in list(args) + list(kwargs.values()) if tensor_bytes(a)]
                return "(kernel %s)" % function.fn.__name__, there, [], BY_OPERATOR
            return probe.launching(plain, function, args, kwargs, described)
        kind.run = run

    def on_graph_trees(self, module):
        """torch._inductor.cudagraph_trees."""
        kind, probe = getattr(module, "CUDAGraphTreeManager", None), self
        plain = getattr(kind, "run", None)
        if plain is None:
            return

        def run(manager, new_inputs, function_id):
            if not probe.recording_program:
                return plain(manager, new_inputs, function_id)
            recorder = probe.recorder
            recorder.between()
            recorder.add(("(graph)", 1, 0, 0, 0, "", 0, 0, 0, (), recorder.stream()))
            outer, recorder.issued = recorder.issued, IN_GRAPH
            try:
                return manager.ids_to_funcs[function_id].model(new_inputs)
            finally:
                recorder.between()
                recorder.issued = outer
        kind.run = run

    def hook_graphs(self, torch):
        plain, probe = torch.cuda.CUDAGraph.replay, self

        def replay(graph):
            if probe.recording_program:
                probe.recorder.replays += 1
            return plain(graph)
        torch.cuda.CUDAGraph.replay = replay

    def launching(self, plain, kernel, args, kwargs, described):
        """A kernel is launched: what came before it is not its own."""
        recording = self.recording_program and not getattr(self.kernel_local, "inside", False)
        if not recording:
            return plain(kernel, *args, **kwargs)
        self.recorder.between()
        self.kernel_local.inside = True
        try:
            return plain(kernel, *args, **kwargs)
        finally:
            self.kernel_local.inside = False
            self.recorder.kernel(*described())


def tensor_bytes(value):
    n = getattr(value, "numel", None)
    return n() * value.element_size() if n and getattr(value, "is_cuda", False) else 0


def fused(names, args, mutated):
    """What is read and what is written, (address, bytes): each tensor once, one that is read and written twice, and of none more than the kernel has
    elements: a row of a table by its index is read, not the table."""
    named = list(zip(names, args))
    elements = 1
    counted = [a for name, a in named if name.endswith("numel") and isinstance(a, int)]
    for n in counted:
        elements *= n
    reads, writes = [], []
    for name, a in named:
        n = tensor_bytes(a)
        if n and counted:
            n = min(n, elements * a.element_size())
        if not n:
            continue
        if not name.startswith("out_ptr"):
            reads.append((a.data_ptr(), n))
        if name.startswith(("out_ptr", "in_out_ptr")) or (name in mutated and name.startswith("in_ptr")):
            writes.append((a.data_ptr(), n))
    return reads, writes

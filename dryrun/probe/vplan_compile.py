# dryrun/probe/vplan_compile.py: the part of the probe that answers torch.compile, whose compiler looks at values and at
# clocks. Its kernels are compiled for the card and not run.


class Compile:
    """Of Probe, which has read_busy and note()."""

    def on_constant_folding(self, module):
        """Inductor makes each tensor of one value on the device and reads it, to drop what adds zero or multiplies by
        one. Read as zero, x + 2 would be x. So the values are those that the same operators have on the CPU."""
        folder = getattr(module, "UniformValueConstantFolder", None)
        if folder is None:
            return
        plain, probe = folder.run, self
        from torch.utils._python_dispatch import TorchDispatchMode

        class OnCpu(TorchDispatchMode):
            def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
                moved = _each((args, kwargs or {}), _on_cpu)
                return operator(*moved[0], **moved[1])

        def run(graph):
            busy = getattr(probe.read_busy, "on", False)
            probe.read_busy.on = True          # what it reads of the device is put right below
            try:
                result = plain(graph)
            finally:
                probe.read_busy.on = busy
            with OnCpu():
                twin = folder(graph.module)
                plain(twin)
            for node in graph.node_replacements:
                if node in twin.node_replacements:
                    graph.node_replacements[node] = twin.node_replacements[node]
            return result
        folder.run = run

    def on_padding(self, module):
        """Inductor times a product of unaligned sizes as it is and padded. No time passes here, so the choice would
        be chance; padded needs more, and is what unaligned 16-bit products are for a card with tensor cores."""
        name = "is_padded_faster" if hasattr(module, "is_padded_faster") else "should_pad"     # before torch 2.10
        plain, probe = getattr(module, name, None), self
        if plain is None:
            return

        def padded(key, as_is_ms, padded_ms):
            probe.note("padding of products", "torch.compile times products of unaligned sizes as they are and padded; they are "
                       "taken to be padded, which needs more (TORCHINDUCTOR_SHAPE_PADDING=0: as they are)")
            return plain(key, 2.0, 1.0)
        setattr(module, name, padded)


def _each(x, f):
    if isinstance(x, (list, tuple)):
        return type(x)(_each(v, f) for v in x)
    if isinstance(x, dict):
        return {k: _each(v, f) for k, v in x.items()}
    return f(x)


def _on_cpu(x):
    import torch
    if isinstance(x, torch.device):
        return torch.device("cpu")
    return x.cpu() if isinstance(x, torch.Tensor) and x.is_cuda else x

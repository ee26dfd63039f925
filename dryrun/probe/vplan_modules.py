# dryrun/probe/vplan_modules.py: the part of the probe that says which module each operator of the recorded step belongs to.
#
#     forward     the innermost module under way, by hooks on all modules
#     backward    the module whose forward made the node that runs: nodes are numbered in the order of their making, thread by thread
#     gradients   of a parameter that are added up: the module that has it
# Layers that differ in a number only have one name: "model.layers.*.mlp".
import bisect
import threading

OPTIMIZER, SCRIPT = "(optimizer)", "(outside modules)"
MOST_NAMES = 400


class Thread:
    """Of a thread: the modules under way, and from which node on which was the innermost."""

    def __init__(self):
        self.under_way, self.first, self.made = [], [], []


class Modules:
    """Follows a step of Probe, which has torch, roots, step_depth and backward_depth, between begin() and end()."""

    def __init__(self, probe):
        self.probe, self.torch = probe, probe.torch
        self.names, self.index = [], {}
        self.of_module, self.of_parameter = {}, {}
        self.local = threading.local()
        self.main = self.made_by()     # what the thread that begins has made
        self.handles = []
        self.node = getattr(self.torch._C, "_current_autograd_node", None)
        self.count = getattr(self.torch.autograd, "_get_sequence_nr", None)
        roots = list(probe.roots)
        for root in roots:
            for path, module in root.named_modules():
                name = self.name_of(root, path)
                if len(roots) > 1 or not name:
                    name = type(root).__name__ + ("." + name if name else "")
                self.of_module.setdefault(id(module), name)
                for p in module.parameters(recurse=False):
                    self.of_parameter.setdefault(id(p), name)

    def name_of(self, root, path):
        """The path with "*" for a number among modules that are alike."""
        parts, holder = [], root
        for part in path.split(".") if path else []:
            children = list(holder.children())
            alike = len({type(m) for m in children}) == 1 and len(children) > 1
            parts.append("*" if part.isdigit() and alike else part)
            holder = getattr(holder, part)
        return ".".join(parts)

    def begin(self):
        hooks = self.torch.nn.modules.module
        try:
            self.handles = [hooks.register_module_forward_pre_hook(self.enter),
                            hooks.register_module_forward_hook(self.leave, always_call=True)]
        except TypeError:
            self.handles = []

    def end(self):
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def made_by(self):
        """This thread's."""
        if not hasattr(self.local, "thread"):
            self.local.thread = Thread()
        return self.local.thread

    def note(self, local):
        if self.count:
            local.first.append(self.count())
            local.made.append(local.under_way[-1] if local.under_way else SCRIPT)

    def enter(self, module, args):
        local = self.made_by()
        local.under_way.append(self.of_module.get(id(module), type(module).__name__))
        self.note(local)

    def leave(self, module, args, out):
        local = self.made_by()
        if local.under_way:
            local.under_way.pop()
        self.note(local)

    def now(self):
        """The number of the module that what runs now belongs to."""
        return self.number(self.name())

    def name(self):
        local = self.made_by()
        if self.probe.step_depth:
            return OPTIMIZER
        if local.under_way:
            return local.under_way[-1]
        node = self.node() if self.node else None
        return self.of_node(node, local) if node is not None else SCRIPT

    def of_node(self, node, local):
        parameter = getattr(node, "variable", None)
        if parameter is not None:
            return self.of_parameter.get(id(parameter), SCRIPT)
        n = node._sequence_nr()
        # a backward inside a backward, as of a checkpoint that is reentrant, is of nodes that its own thread has made
        made = local if self.probe.backward_depth > 1 else self.main
        at = bisect.bisect_right(made.first, n) - 1
        return made.made[at] if at >= 0 else SCRIPT

    def number(self, name):
        at = self.index.get(name)
        if at is None and len(self.names) >= MOST_NAMES:
            name, at = SCRIPT, self.index.get(SCRIPT)
        if at is None:
            at = self.index[name] = len(self.names)
            self.names.append(name)
        return at

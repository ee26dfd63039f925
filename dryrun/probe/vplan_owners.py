# dryrun/probe/vplan_owners.py: the part of the probe that says who held memory at the peak: the allocator's history, replayed, with the phase in
# which each block was allocated, the Python frame that did it, and what it is.
import bisect
import os

MOST_MARKS = 200000
OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")     # frames here are not the script's


class Owners:
    """Of Probe, which has torch, raw_stats(), phases, roots, optimizers and grads."""

    def init_owners(self):
        self.marks_at = [0]            # allocation counter at each change of the phase, or of what is done in it ...
        self.marks = [("load", None)]  # ... and what begins there
        self.births = {}               # address -> (allocation counter, bytes) of blocks alive when a history ended

    def analyse(self):
        """Who held memory at the peak: replay the allocator's history."""
        if self.n_analyses >= 8 or not self.recording:
            return
        self.n_analyses += 1
        torch = self.torch
        try:
            snap = torch.cuda.memory._snapshot()
        except Exception as e:
            self.note("history", "the allocator's history could not be read (%s): no owners" % e)
            return
        n_end = self.raw_stats(0)["allocation"]["all"]["allocated"]
        trace = snap["device_traces"][0] if snap.get("device_traces") else []
        n_allocs = sum(1 for e in trace if e["action"] == "alloc")
        first = n_end - n_allocs            # ordinal of the first allocation in the trace
        births = dict(self.births)
        self.keep_births(trace, first)
        # Blocks older than the trace: freed in it, or alive at its end, without an allocation in it.
        known, base, live = {}, {}, 0
        for e in trace:
            if e["action"] == "alloc":
                known[e["addr"]] = True
            elif e["action"] == "free_requested":
                if not known.pop(e["addr"], False):
                    base[e["addr"]] = (e["size"], -1, ())
        for segment in snap["segments"]:
            if segment.get("device", 0) != 0:
                continue
            at = segment["address"]
            for block in segment["blocks"]:
                addr = block.get("address", at)
                if block["state"] == "active_allocated" and addr not in known:
                    size, frames = block.get("requested_size", block["size"]), block.get("frames", ())
                    base[addr] = (size, self.born(births.get(addr), size, frames), frames)
                at += block["size"]
        live = sum(b[0] for b in base.values())
        best, best_at, ordinal = live, -1, first
        for i, e in enumerate(trace):
            if e["action"] == "alloc":
                live += e["size"]
                if live > best:
                    best, best_at = live, i
            elif e["action"] == "free_requested":
                live -= e["size"]
        blocks = dict(base)
        for i, e in enumerate(trace[:best_at + 1]):
            if e["action"] == "alloc":
                blocks[e["addr"]] = (e["size"], ordinal, e.get("frames", ()))
                ordinal += 1
            elif e["action"] == "free_requested":
                blocks.pop(e["addr"], None)
        peak_ordinal = ordinal
        # When a block of the peak is freed afterwards decides activation or temporary.
        freed_at = {}
        o = peak_ordinal
        for e in trace[best_at + 1:]:
            if e["action"] == "alloc":
                o += 1
            elif e["action"] == "free_requested" and e["addr"] in blocks and e["addr"] not in freed_at:
                freed_at[e["addr"]] = o
        parameters, buffers, states, grads = set(), set(), set(), set()
        kind = self.torch.nn.Module
        for root in list(self.roots):
            held = list(kind.parameters(root))         # by the class: Megatron's wrapper has a list named buffers
            parameters.update(address_of(p) for p in held)
            buffers.update(address_of(b) for b in kind.buffers(root))
            grads.update(address_of(p.grad) for p in held if p.grad is not None)
        for optimizer in list(self.optimizers):
            for group in optimizer.param_groups:
                parameters.update(address_of(p) for p in group["params"])
            for state in optimizer.state.values():
                if isinstance(state, dict):
                    states.update(address_of(v) for v in state.values() if isinstance(v, torch.Tensor))
        rows = []
        for addr, (size, born, frames) in blocks.items():
            phase, part = self.marks[self.mark_at(born)] if born >= 0 else ("load", None)
            end = freed_at.get(addr, n_end)
            stays = addr not in freed_at      # else the address may be another tensor's by now
            if stays and addr in parameters:
                kind = "parameters"
            elif stays and addr in buffers:
                kind = "buffers"
            elif stays and addr in states:
                kind = "optimizer_state"
            elif stays and addr in grads or any(n >= born and n <= end and addr in g for n, g in self.grads):
                kind = "gradients"
            elif part == "forward" or phase == "eval":
                kind = "activations" if self.mark_at(end) != self.mark_at(born) else "temporaries"
            elif part == "backward":
                kind = "recompute" if any("checkpoint.py" in f["filename"] for f in frames[:40]) else "temporaries"
            elif part == "step" or phase == "gap":
                kind = "temporaries"
            else:
                kind = "inputs_and_other"
            rows.append((addr, size, kind, self.shown(phase), owner_of(frames)))
        self.live_at_peak = rows
        self.analysed_peak = self.peak
        self.owners_requested = best

    def keep_births(self, trace, first):
        """When the blocks that are alive at the end of a history were allocated: the next one does not have them."""
        births = {}
        for e in trace:
            if e["action"] == "alloc":
                births[e["addr"]] = (first, e["size"])
                first += 1
            elif e["action"] == "free_requested":
                births.pop(e["addr"], None)
                self.births.pop(e["addr"], None)
        self.births.update(births)

    def born(self, birth, size, frames):
        """The allocation counter of a block older than the history: as an earlier one has it; without that and without
        frames it was made between the two, in a step; else -1, at the start."""
        if birth and birth[1] == size:
            return birth[0]
        return self.marks_at[-1] if not frames and self.births else -1

    def mark(self, n, phase, kind):
        """What is allocated from the counter n on belongs to this phase."""
        if len(self.marks) < MOST_MARKS:
            self.marks_at.append(n)
            self.marks.append((phase, kind))

    def mark_at(self, n):
        """The phase under way at an allocation counter: its place in marks."""
        return bisect.bisect_right(self.marks_at, n) - 1

    def shown(self, phase):
        return "between" if phase in ("gap", "other") else phase

    def frame_of(self, event):
        return owner_of(event.get("frames", ()))

    def cublas_addresses(self):
        """cuBLAS workspaces are the blocks that vanish when PyTorch is told to drop them."""
        torch = self.torch
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is None:
            return set()

        def live():
            out = set()
            for segment in torch.cuda.memory._snapshot()["segments"]:
                at = segment["address"]
                for block in segment["blocks"]:
                    if block["state"] == "active_allocated":
                        out.add(block.get("address", at))
                    at += block["size"]
            return out
        try:
            torch.cuda.memory._record_memory_history(None)
            before = live()
            clear()
            return before - live()
        except Exception:
            return set()


def address_of(t):
    t = getattr(t, "_local_tensor", t)
    try:
        return t.untyped_storage().data_ptr()
    except Exception:
        return 0


def short_place(place):
    for marker in ("/site-packages/", "/dist-packages/", os.environ["VPLAN_NULL_REPORT"] + "/"):
        if marker in place:
            return place.split(marker, 1)[1]
    return place


def owner_of(frames):
    """The innermost frame outside PyTorch and the probe; else the innermost at all."""
    for f in frames:
        name = f["filename"]
        if "/torch/" not in name and not name.startswith(OURS) and name not in ("??", ""):
            return "%s:%d %s" % (short_place(name), f["line"], f["name"])
    for f in frames:
        if not f["filename"].startswith(OURS) and f["filename"] not in ("??", ""):
            return "%s:%d %s" % (short_place(f["filename"]), f["line"], f["name"])
    return "(no Python frame: PyTorch's autograd thread)"

# dryrun/probe/vplan_growth.py: the part of the probe that sees a training grow: what is allocated after each optimizer step,
# and what an earlier step has left there, by the frame that allocated it. Longer batches raise the first and leave nothing; a list of
# losses with their graphs, a metric that stays on the device or a cache leave something in every step.
RECORDED_STEPS = 4             # the allocator's history is on for so many, or as many as --steps says, up to MOST_RECORDED
MOST_RECORDED = 20
MOST_STEPS = 1000              # of which the allocated bytes are reported
MOST_FRAMES = 12
BLOCK_BYTES = 512              # what the allocator rounds up to


class Growth:
    """Of Probe, which has raw_stats(), recording, total_steps and steps_wanted."""

    def init_growth(self):
        self.after_steps = []          # bytes allocated after each optimizer step
        self.step_marks = []           # allocation counter there
        self.left_behind = None               # [frame, bytes, tensors, steps], largest first

    def steps_to_record(self):
        return min(max(RECORDED_STEPS, self.steps_wanted), MOST_RECORDED)

    def after_step(self):
        """The same point of every step: right after the optimizer."""
        if self.recording_program or len(self.after_steps) >= MOST_STEPS:
            return
        stats = self.raw_stats(0)
        self.after_steps.append(stats["allocated_bytes"]["all"]["current"])
        self.step_marks.append(stats["allocation"]["all"]["allocated"])
        if self.recording and self.total_steps == self.steps_to_record():
            self.look_for_kept()

    def rises(self):
        """Whether no step after the second has less than the one before it, and the last has more."""
        a = self.after_steps[1:]
        return len(a) > 2 and all(y >= x for x, y in zip(a, a[1:])) and a[-1] > a[0]

    def look_for_kept(self):
        """Blocks that a step other than the first and the last allocated and that are still there, by the frame that did; of
        these frames those of which more are there from step to step. So batches of all lengths may come in between, and
        a queue of batches fetched ahead, as long as ever, is no growth."""
        snap = self.torch.cuda.memory._snapshot()
        trace = snap["device_traces"][0] if snap.get("device_traces") else []
        at = self.step_marks[-1] - sum(1 for e in trace if e["action"] == "alloc")
        self.keep_births(trace, at)
        alive = {}
        counts = []                    # after each step but the first: blocks by frame
        for e in trace:
            if e["action"] == "alloc":
                at += 1
                if 1 < len(counts) + 2 < len(self.step_marks) and at > self.step_marks[len(counts) + 1]:
                    counts.append(self.count_alive(alive))
                alive[e["addr"]] = (at, e)
            elif e["action"] == "free_requested":
                alive.pop(e["addr"], None)
        counts.append(self.count_alive(alive))
        by_frame = {}
        for born, e in alive.values():
            step = sum(1 for mark in self.step_marks if mark < born) + 1
            if 1 < step < len(self.step_marks):
                entry = by_frame.setdefault(self.frame_of(e), [0, 0, set()])
                entry[0] += -(-e["size"] // BLOCK_BYTES) * BLOCK_BYTES
                entry[1] += 1
                entry[2].add(step)
        rows = []
        for frame, (n, count, steps) in by_frame.items():
            n_alive = [c.get(frame, 0) for c in counts]
            rising = all(y >= x for x, y in zip(n_alive, n_alive[1:])) and n_alive[-1] > n_alive[0]
            if len(steps) > 1 and rising:      # what one step alone has left is made once: a cache that is filled late
                rows.append([frame, n, count, len(steps)])
        if rows or self.rises():
            self.left_behind = sorted(rows, key=lambda row: (-row[1], row[0]))

    def count_alive(self, alive):
        counts = {}
        for _, e in alive.values():
            frame = self.frame_of(e)
            counts[frame] = counts.get(frame, 0) + 1
        return counts

    def growth(self):
        """For the report."""
        rows = self.left_behind or []
        steps = max([row[3] for row in rows] or [1])
        a = self.after_steps[1:]
        longer = self.left_behind == [] and all(y > x for x, y in zip(a, a[1:]))
        return {"after_step_bytes": self.after_steps, "longer_batches": longer, "kept_bytes_per_step": sum(row[1] for row in rows) // steps,
                "kept": [{"frame": f, "bytes": b, "tensors": n, "steps": s} for f, b, n, s in rows[:MOST_FRAMES]]}

#!/usr/bin/env python3
"""tests/check_tables.py: the independent checker of a plan's two tables.

    vplan explain plan.json --buffers > b.csv
    vplan explain plan.json --program > p.csv
    tests/check_tables.py b.csv p.csv --peak 4506688 --step-time 0.0034136934400000015
    tests/check_tables.py --self-test b.csv p.csv --peak ... --step-time ...

It knows the tables and nothing of plans, models or vplan's code. What it demands:

    the two header lines; a row has as many fields as its header; numbers are numbers
    steps are numbered 0, 1, 2, ...; seconds are finite, not negative, and sum to the stated step time (1e-9 relative)
    buffers have numbers of their own, bytes > 0, offset >= 0, a memory and a component of the lists below, and live
    from a step to the same or a later one inside the program
    what a step reads or writes is a buffer, and alive
    only parameters, master, optimizer_state, batch_input, constants and control hold data before step 0; any other buffer
    is written in an earlier step than its first read
    two buffers of one memory that are alive together do not overlap
    a memory's largest offset + bytes is its stated peak, and its rows, padding included, cover every byte below it

Exit 0 and a line of counts; 1 and one located line for the first thing that is wrong; 2 for a wrong command line.
--self-test spoils a good pair of tables in every way listed in SPOILED below and demands that each is found."""
import argparse
import bisect
import csv
import io
import math
import sys

BUFFERS = "buffer,memory,offset,bytes,first_step,last_step,component,name"
PROGRAM = "step,phase,micro_step,block,op,stream,reads,writes,seconds"
MEMORIES = ("device", "host", "host-pinned", "nvme")
PERSISTENT = ("parameters", "master", "optimizer_state", "batch_input", "constants", "control")
COMPONENTS = PERSISTENT + ("gradients", "activations", "temporaries", "workspace", "staging", "padding")


class Wrong(Exception):
    pass


class Buffer:
    pass


def rows(name, text, header):
    """Rows of a table as (line, dict), after its header and shape were checked."""
    lines = text.split("\n")
    if lines[0] != header:
        raise Wrong("%s:1: the header is %r, not %r" % (name, lines[0], header))
    if not text.endswith("\n"):
        raise Wrong("%s:%d: the table ends inside a line" % (name, len(lines)))
    keys = header.split(",")
    reader = csv.reader(io.StringIO(text), strict=True)
    out = []
    try:
        next(reader)
        for row in reader:
            if len(row) != len(keys):
                raise Wrong("%s:%d: %d fields, not %d" % (name, reader.line_num, len(row), len(keys)))
            out.append((reader.line_num, dict(zip(keys, row))))
    except csv.Error as e:
        raise Wrong("%s:%d: %s" % (name, reader.line_num, e))
    if not out:
        raise Wrong("%s:1: the table is empty" % name)
    return out


def whole(where, field, text, least=0):
    digits = text[1:] if text[:1] == "-" else text
    if not digits.isascii() or not digits.isdigit():
        raise Wrong("%s: %s is %r, not a whole number" % (where, field, text))
    if int(text) < least:
        raise Wrong("%s: %s is %s, less than %d" % (where, field, text, least))
    return int(text)


def read_buffers(name, text, n_steps):
    buffers = {}
    for line, row in rows(name, text, BUFFERS):
        b = Buffer()
        b.where = "%s:%d" % (name, line)
        b.id = whole(b.where, "buffer", row["buffer"])
        b.offset = whole(b.where, "offset", row["offset"])
        b.bytes = whole(b.where, "bytes", row["bytes"], 1)
        b.first = whole(b.where, "first_step", row["first_step"])
        b.last = whole(b.where, "last_step", row["last_step"])
        b.memory, b.component, b.name = row["memory"], row["component"], row["name"]
        b.text = "buffer %d (%s)" % (b.id, b.name)
        if b.id in buffers:
            raise Wrong("%s: buffer %d stands already at %s" % (b.where, b.id, buffers[b.id].where))
        if b.memory not in MEMORIES:
            raise Wrong("%s: %s: memory %r is none of %s" % (b.where, b.text, b.memory, ", ".join(MEMORIES)))
        if b.component not in COMPONENTS:
            raise Wrong("%s: %s: component %r is not in the list" % (b.where, b.text, b.component))
        if b.last < b.first:
            raise Wrong("%s: %s dies in step %d, before its birth in step %d" % (b.where, b.text, b.last, b.first))
        if b.last >= n_steps:
            raise Wrong("%s: %s lives to step %d; the program has %d steps" % (b.where, b.text, b.last, n_steps))
        buffers[b.id] = b
    return buffers


def check_uses(name, steps, buffers):
    """Every use inside its buffer's life; every read after a write of an earlier step."""
    written = {b.id for b in buffers.values() if b.component in PERSISTENT}
    for idx, (line, row) in enumerate(steps):
        where = "%s:%d: step %d (%s)" % (name, line, idx, row["op"])
        used = {}
        for how in ("reads", "writes"):
            used[how] = [whole(where, how, x) for x in row[how].split(";")] if row[how] else []
            for x in used[how]:
                if x not in buffers:
                    raise Wrong("%s %s buffer %d, which is not in the table of buffers" % (where, how, x))
                b = buffers[x]
                if b.component == "padding":
                    raise Wrong("%s %s %s, which is padding" % (where, how, b.text))
                if not b.first <= idx <= b.last:
                    raise Wrong("%s %s %s, which lives from step %d to %d" % (where, how, b.text, b.first, b.last))
        for x in used["reads"]:
            if x not in written:
                raise Wrong("%s reads %s, which no earlier step wrote" % (where, buffers[x].text))
        written.update(used["writes"])


def check_updates(name, steps, buffers):
    """What has a gradient is changed by the optimizer."""
    changed = {int(x) for _, row in steps if row["phase"] == "optimizer" for x in row["writes"].split(";") if x}
    trained = {b.name[len("grad "):] for b in buffers.values() if b.component == "gradients" and b.name.startswith("grad ")}
    for b in buffers.values():
        if b.component == "parameters" and b.name in trained and b.id not in changed:
            raise Wrong("%s: no step of the optimizer changes %s" % (name, b.text))


def check_overlap(buffers):
    """Sweep over the steps with the living buffers in order of offset: neighbours may not touch."""
    births = sorted(buffers, key=lambda b: (b.first, b.offset))
    deaths = sorted(buffers, key=lambda b: b.last)
    begins, alive, d = [], [], 0
    for b in births:
        while deaths[d].last < b.first:
            k = bisect.bisect_left(begins, deaths[d].offset)
            assert alive[k] is deaths[d]
            del begins[k], alive[k]
            d += 1
        k = bisect.bisect_left(begins, b.offset)
        for other in alive[max(k - 1, 0):k + 1]:
            if other.offset < b.offset + b.bytes and b.offset < other.offset + other.bytes:
                raise Wrong("%s: %s [%d, %d) overlaps %s [%d, %d) of %s; both are alive in step %d"
                            % (b.where, b.text, b.offset, b.offset + b.bytes, other.text, other.offset,
                               other.offset + other.bytes, other.where, b.first))
        begins.insert(k, b.offset)
        alive.insert(k, b)


def check_cover(name, memory, buffers, peak):
    end, last = 0, None
    for b in sorted(buffers, key=lambda b: b.offset):
        if b.offset > end:
            raise Wrong("%s: memory %s: no row covers bytes [%d, %d), before %s of %s"
                        % (name, memory, end, b.offset, b.text, b.where))
        if b.offset + b.bytes > end:
            end, last = b.offset + b.bytes, b
    if peak is not None and end != peak:
        raise Wrong("%s: memory %s: the largest offset + bytes is %d, of %s; the stated peak is %d"
                    % (last.where, memory, end, last.text, peak))
    return end


def check(buffers_name, buffers_text, program_name, program_text, peak=None, host_peak=None, step_time=None):
    """Raises Wrong; else returns the line to print."""
    steps = rows(program_name, program_text, PROGRAM)
    seconds = []
    for idx, (line, row) in enumerate(steps):
        where = "%s:%d" % (program_name, line)
        if whole(where, "step", row["step"]) != idx:
            raise Wrong("%s: step %s stands where step %d should" % (where, row["step"], idx))
        whole(where, "micro_step", row["micro_step"], -1)
        for key in ("phase", "block", "op", "stream"):
            if not row[key]:
                raise Wrong("%s: no %s" % (where, key))
        try:
            s = float(row["seconds"])
        except ValueError:
            raise Wrong("%s: seconds is %r, not a number" % (where, row["seconds"]))
        if not math.isfinite(s) or s < 0:
            raise Wrong("%s: seconds is %s" % (where, row["seconds"]))
        seconds.append(s)
    buffers = read_buffers(buffers_name, buffers_text, len(steps))
    check_uses(program_name, steps, buffers)
    check_updates(program_name, steps, buffers)
    peaks = {}
    for memory in MEMORIES:
        here = [b for b in buffers.values() if b.memory == memory]
        if here:
            check_overlap(here)
            peaks[memory] = check_cover(buffers_name, memory, here, peak if memory == "device" else None)
    if peak is not None and "device" not in peaks:
        raise Wrong("%s: no buffer in memory device" % buffers_name)
    if host_peak is not None and sum(p for m, p in peaks.items() if m.startswith("host")) != host_peak:
        raise Wrong("%s: the peaks of the host memories do not sum to %d" % (buffers_name, host_peak))
    total = math.fsum(seconds)
    if step_time is not None and abs(total - step_time) > 1e-9 * max(abs(step_time), abs(total)):
        raise Wrong("%s: the seconds sum to %.17g; the stated step time is %.17g" % (program_name, total, step_time))
    return "%d buffers, %d steps, peak %d" % (len(buffers), len(steps), peaks.get("device", 0))


# ---- the self-test ----

class Tables:
    """A good pair of tables to spoil: lists of rows without headers, and the stated figures."""

    def __init__(self, buffers_text, program_text, peak, step_time):
        self.b = [list(r) for r in csv.reader(io.StringIO(buffers_text))][1:]
        self.p = [list(r) for r in csv.reader(io.StringIO(program_text))][1:]
        self.b_header, self.p_header, self.peak, self.step_time = BUFFERS, PROGRAM, peak, step_time
        self.cut = 0

    def text(self, header, table):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(table)
        return header + "\n" + out.getvalue()

    def check(self):
        buffers = self.text(self.b_header, self.b)
        return check("b.csv", buffers[:len(buffers) - self.cut], "p.csv", self.text(self.p_header, self.p), self.peak,
                     0, self.step_time)

    def row(self, component):
        return next(r for r in self.b if r[6] == component)

    def by_id(self, x):
        return next(r for r in self.b if r[0] == x)

    def uses(self, x):
        return [k for k, r in enumerate(self.p) if x in r[6].split(";") + r[7].split(";")]

    def short_lived(self):
        """A buffer with a first write and a later read, that others follow and precede in its place."""
        n = len(self.p)
        return next(r for r in self.b if r[6] == "activations" and int(r[4]) > 2 and int(r[5]) < n - 3
                    and len(self.uses(r[0])) > 1 and any(self.shares(r, s) for s in self.b))

    def shares(self, r, s):
        """Whether s lies over r and lives wholly later."""
        return (r[1] == s[1] and s[6] != "padding" and int(s[2]) < int(r[2]) + int(r[3])
                and int(r[2]) < int(s[2]) + int(s[3]) and int(s[4]) > int(r[5]))


def without(joined, x):
    return ";".join(y for y in joined.split(";") if y != x)


def set_field(row, k, value):
    row[k] = str(value)


def unwrite(t):
    """The only early writer of a buffer no longer writes it."""
    r = t.short_lived()
    step = t.p[t.uses(r[0])[0]]
    step[7] = without(step[7], r[0])


def read_own_output(t):
    """A buffer is first written by the step that first reads it."""
    r = t.short_lived()
    step = t.p[t.uses(r[0])[0]]
    step[6] = (step[6] + ";" if step[6] else "") + r[0]


def outlive(t):
    r = t.short_lived()
    set_field(r, 5, next(s for s in t.b if t.shares(r, s))[4])


def uncover(t):
    """A byte in the middle that nothing ever covers: a parameter's last four bytes."""
    r = t.row("parameters")
    set_field(r, 3, int(r[3]) - 4)


def above_the_peak(t):
    t.b.append([str(10 ** 6), "device", str(t.peak), "4", "0", "0", "temporaries", "extra"])


def two_in_one_place(t):
    r = t.row("optimizer_state") if any(b[6] == "optimizer_state" for b in t.b) else t.row("gradients")
    set_field(r, 2, t.row("parameters")[2])


def no_update(t):
    """A step of the optimizer reads the parameter that it would change."""
    x = t.row("parameters")[0]
    for step in t.p:
        if step[1] == "optimizer":
            step[7] = without(step[7], x)


def swap_steps(t):
    t.p[0][0], t.p[1][0] = t.p[1][0], t.p[0][0]


def last_write_after_death(t):
    r = t.short_lived()
    set_field(r, 5, t.uses(r[0])[-1] - 1)


def born_late(t):
    r = t.short_lived()
    set_field(r, 4, t.uses(r[0])[0] + 1)


SPOILED = [  # what is done, how, and what the message must say
    ("header of the buffers", lambda t: setattr(t, "b_header", BUFFERS.replace("bytes", "size")), "b.csv:1: the header"),
    ("header of the program", lambda t: setattr(t, "p_header", PROGRAM + ",extra"), "p.csv:1: the header"),
    ("a field too few", lambda t: t.b[4].pop(), "b.csv:6: 7 fields, not 8"),
    ("a field too many", lambda t: t.p[0].append("x"), "p.csv:2: 10 fields, not 9"),
    ("a parameter that is never changed", no_update, "no step of the optimizer changes"),
    ("no buffers", lambda t: t.b.clear(), "the table is empty"),
    ("no steps", lambda t: t.p.clear(), "the table is empty"),
    ("the last line cut off", lambda t: setattr(t, "cut", 3), "ends inside a line"),
    ("a number that is none", lambda t: set_field(t.b[0], 3, "1e3"), "bytes is '1e3', not a whole number"),
    ("a negative offset", lambda t: set_field(t.b[3], 2, -4), "offset is -4"),
    ("no bytes", lambda t: set_field(t.b[3], 3, 0), "bytes is 0"),
    ("one number for two buffers", lambda t: set_field(t.b[3], 0, t.b[2][0]), "stands already at"),
    ("an unknown memory", lambda t: set_field(t.b[3], 1, "gpu"), "memory 'gpu'"),
    ("an unknown component", lambda t: set_field(t.row("gradients"), 6, "gradient"), "component 'gradient'"),
    ("a death before a birth", lambda t: set_field(t.short_lived(), 5, 0), "before its birth"),
    ("a life beyond the program", lambda t: set_field(t.b[0], 5, len(t.p)), "the program has"),
    ("two buffers in one place", two_in_one_place, "overlaps"),
    ("a buffer moved by four bytes", lambda t: set_field(t.row("gradients"), 2, int(t.row("gradients")[2]) - 4), "overlaps"),
    ("a life longer than its place is free", outlive, "overlaps"),
    ("a life that ends before the last use", last_write_after_death, "which lives from step"),
    ("a life that begins after the first write", born_late, "which lives from step"),
    ("parameters that hold nothing before step 0", lambda t: set_field(t.row("parameters"), 6, "activations"), "no earlier step wrote"),
    ("a write left out", unwrite, "no earlier step wrote"),
    ("a first write in the step of the first read", read_own_output, "no earlier step wrote"),
    ("a read of no buffer", lambda t: set_field(t.p[2], 6, t.p[2][6] + ";999999"), "not in the table of buffers"),
    ("a write of no buffer", lambda t: set_field(t.p[2], 7, "999999"), "not in the table of buffers"),
    ("a read that is no number", lambda t: set_field(t.p[2], 6, "a"), "not a whole number"),
    ("used padding", lambda t: set_field(t.by_id(t.p[2][7].split(";")[0]), 6, "padding"), "which is padding"),
    ("steps out of order", swap_steps, "stands where step 0 should"),
    ("a step left out", lambda t: t.p.pop(3), "stands where step 3 should"),
    ("a step without a stream", lambda t: set_field(t.p[5], 5, ""), "p.csv:7: no stream"),
    ("a stated peak 4 bytes higher", lambda t: setattr(t, "peak", t.peak + 4), "the stated peak is"),
    ("a stated peak 4 bytes lower", lambda t: setattr(t, "peak", t.peak - 4), "the stated peak is"),
    ("a buffer above the peak", above_the_peak, "the stated peak is"),
    ("a byte that no row covers", uncover, "no row covers"),
    ("a buffer moved to host memory", lambda t: set_field(t.row("gradients"), 1, "host"), "no row covers"),
    ("one step slower than stated", lambda t: set_field(t.p[7], 8, float(t.p[7][8]) * 1.001), "the stated step time"),
    ("seconds below zero", lambda t: set_field(t.p[7], 8, "-1e-9"), "seconds is -1e-9"),
    ("seconds that are no number", lambda t: set_field(t.p[7], 8, "nan"), "seconds is nan"),
]


def self_test(buffers_text, program_text, peak, step_time):
    passed = failed = 0

    def expect(what, good, said):
        nonlocal passed, failed
        passed, failed = passed + good, failed + (not good)
        if not good:
            print("FAIL: %s: %s" % (what, said))

    try:
        expect("the good tables", True, Tables(buffers_text, program_text, peak, step_time).check())
    except Wrong as e:
        expect("the good tables", False, e)
    for what, spoil, text in SPOILED:
        t = Tables(buffers_text, program_text, peak, step_time)
        spoil(t)
        try:
            expect(what, False, "not found: " + t.check())
        except Wrong as e:
            expect(what, text in str(e), "wanted '%s', got '%s'" % (text, e))
    return passed, failed


def main():
    parser = argparse.ArgumentParser(usage="check_tables.py [--self-test] BUFFERS.csv PROGRAM.csv [--peak BYTES] "
                                           "[--host-peak BYTES] [--step-time SECONDS]")
    parser.add_argument("buffers")
    parser.add_argument("program")
    parser.add_argument("--peak", type=int)
    parser.add_argument("--host-peak", type=int)
    parser.add_argument("--step-time", type=float)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    try:
        with open(args.buffers, encoding="utf-8", newline="") as f:
            buffers_text = f.read()
        with open(args.program, encoding="utf-8", newline="") as f:
            program_text = f.read()
        if args.self_test:
            passed, failed = self_test(buffers_text, program_text, args.peak, args.step_time)
            print("%d passed, %d failed" % (passed, failed))
            return 1 if failed else 0
        print(check(args.buffers, buffers_text, args.program, program_text, args.peak, args.host_peak, args.step_time))
    except (Wrong, UnicodeDecodeError) as e:
        print(e)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

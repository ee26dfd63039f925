"""From recordings with different layer counts to one program whose block repeats.

A phase is a prefix, a body that runs once a repeated block, and a suffix. An allocation has a slot: its phase, section and position; in a
body one a repetition. What is freed is a slot and a rule that says of which repetitions:
  ""      the slot is in no body            "*j:k"  of all but the first j and the last k
  "i+j"   the repetition that runs, + j     "r+j"   the same counted from the other end     (in bodies, if there is one)
  "s+j"   number j                          "e+j"   number j from the end                   (elsewhere)
  "^"     in the first repetition only      "$"     in the last one only                    (in bodies, of slots in none)
"""


class Mismatch(Exception):
    pass


def tokens(events):
    return [("a", e[2]) if e[0] == "a" else ("f",) for e in events]


class Phase:
    def __init__(self, name, lengths, runs):
        self.name = name
        self.lengths, self.runs = lengths, runs
        self.toks = [tokens(r[name]) for r in runs]

    def candidates(self):
        """(irregular blocks, start of the body, its length), best first."""
        n = [len(t) for t in self.toks]
        steps = {(n[i + 1] - n[i], self.lengths[i + 1] - self.lengths[i]) for i in range(len(n) - 1)}
        if len({a * 1000 // b for a, b in steps}) != 1:
            raise Mismatch("%s: %s events for %s blocks" % (self.name, n, self.lengths))
        per = (n[1] - n[0]) // (self.lengths[1] - self.lengths[0])
        if per == 0:
            yield 0, n[0], 0
            return
        t0, tn, ln = self.toks[0], self.toks[-1], self.lengths[-1]
        for irregular in range(self.lengths[0]):
            reps = ln - irregular
            for start in range(len(tn) - reps * per + 1):
                if tn[start:start + (reps - 1) * per] != tn[start + per:start + reps * per]:
                    continue
                if all(t == tn[:start] + tn[start:start + per] * (l - irregular) + tn[start + reps * per:]
                       for t, l in zip(self.toks, self.lengths)):
                    yield irregular, start, per

    def locate(self, run, l, irregular, start, per, where):
        """Allocation id -> (slot, repetition) of one run; slot is (phase, section, position)."""
        reps = l - irregular if per else 0
        for i, e in enumerate(self.runs[run][self.name]):
            sec, rep, pos = place(i, start, per, reps)
            if e[0] == "a":
                where[e[1]] = ((self.name, sec, pos), rep)
        return reps


def place(i, start, per, reps):
    if i < start:
        return "p", None, i
    if per and i < start + reps * per:
        return "b", (i - start) // per, (i - start) % per
    return "s", None, i - start - reps * per


def rules_outside(sets, n):
    """One free outside bodies: for each run the set of repetitions of one slot; n the number of them in each run."""
    for j in range(3):
        for k in range(3):
            if all(s == set(range(j, m - k)) for s, m in zip(sets, n)):
                return ["*%d:%d" % (j, k)]
    if all(s == sets[0] for s in sets) and len(sets[0]) <= 2:
        return ["s+%d" % x for x in sorted(sets[0])]
    ends = [{m - 1 - x for x in s} for s, m in zip(sets, n)]
    if all(s == ends[0] for s in ends) and len(ends[0]) <= 2:
        return ["e+%d" % x for x in sorted(ends[0])]
    raise Mismatch("freed repetitions %s of %s" % (sets, n))


def rules_inside(pairs, same_phase):
    """One free in a body: pairs (repetition that runs, set of repetitions, number of them) over all runs. A repetition that
    there is none of is passed over: what the first one frees in its place is a slot of its own."""
    def fits(letter, deltas):
        return all(s == {j for j in (at(letter, d, i, n) for d in deltas) if 0 <= j < n} for i, s, n in pairs)

    for letter in "ir" if same_phase else "ri":
        for deltas in ((-1,), (0,), (1,), (-2,), (2,), (0, 1), (-1, 0)):
            if fits(letter, deltas):
                return ["%s%+d" % (letter, d) for d in deltas]
    raise Mismatch("freed in a body %s" % (pairs[:4],))


def rules_single(pairs):
    """The same of a slot that is in no body: pairs (repetition that runs, whether it is freed, number of repetitions)."""
    if all(freed == (i == 0) for i, freed, n in pairs):
        return ["^"]
    if all(freed == (i == n - 1) for i, freed, n in pairs):
        return ["$"]
    raise Mismatch("freed in some blocks %s" % (pairs[:4],))


def at(letter, d, i, n):
    return d if letter == "s" else n - 1 - d if letter == "e" else i + d if letter == "i" else n - 1 - i - d


def generalise(names, lengths, runs):
    """names of phases in order; runs[i] is a recording's phases for lengths[i] repeated blocks. Returns the program:
    [(phase, irregular, prefix, body, suffix)], tokens being ("a",) or ("f", [(slot, rule)])."""
    def go(k, wheres, reps):
        if k == len(names):
            return []
        phase = Phase(names[k], lengths, runs)
        why = None
        for irregular, start, per in phase.candidates():
            new = [dict(w) for w in wheres]
            count = [dict(r) for r in reps]
            for run, l in enumerate(lengths):
                count[run][names[k]] = phase.locate(run, l, irregular, start, per, new[run])
            try:
                sections = frees(phase, irregular, start, per, new, count)
                return [(names[k], irregular) + sections] + go(k + 1, new, count)
            except Mismatch as e:
                why = why or e
        raise why or Mismatch("%s: no body repeats" % names[k])

    def frees(phase, irregular, start, per, wheres, counts):
        out = {"p": {}, "b": {}, "s": {}}
        table = {}
        for run, l in enumerate(lengths):
            reps = counts[run][phase.name]
            for i, e in enumerate(runs[run][phase.name]):
                sec, rep, pos = place(i, start, per, reps)
                if e[0] == "a":
                    out[sec][pos] = ("a",)
                    continue
                groups = {}
                for ident in e[1]:
                    slot, j = wheres[run][ident]
                    groups.setdefault(slot, set()).add(j)
                table.setdefault((sec, pos), []).append((run, rep, groups))
        for (sec, pos), seen in table.items():
            slots = []
            for slot in sorted({s for _, _, g in seen for s in g}, key=str):
                sets = [g.get(slot, set()) for _, _, g in seen]
                if slot[1] != "b":
                    if sec == "b":
                        slots += [(slot, r) for r in rules_single([(rep, bool(s), counts[run][phase.name])
                                                                   for (run, rep, _), s in zip(seen, sets)])]
                        continue
                    if not all(s == {None} for s in sets):
                        raise Mismatch("%s frees %s in some blocks only" % (phase.name, slot))
                    slots.append((slot, ""))
                    continue
                n = [counts[run][slot[0]] for run, _, _ in seen]
                if sec == "b":
                    slots += [(slot, r) for r in rules_inside([(rep, s, m) for (_, rep, _), s, m in zip(seen, sets, n)],
                                                              slot[0] == phase.name)]
                else:
                    slots += [(slot, r) for r in rules_outside(sets, n)]
            out[sec][pos] = ("f", slots)
        return tuple([out[s][i] for i in range(len(out[s]))] for s in "pbs")

    return go(0, [{} for _ in runs], [{} for _ in runs])


def unroll(program, l):
    """The program for l repeated blocks: phase -> events, ids in order, sizes as slots."""
    ids = {}
    out = {}
    reps_of = {p[0]: l - p[1] if p[3] else 0 for p in program}
    n = 0
    for name, irregular, prefix, body, suffix in program:
        events = out[name] = []
        reps = reps_of[name]
        parts = [("p", None, prefix)] + [("b", i, body) for i in range(reps)] + [("s", None, suffix)]
        for sec, rep, toks in parts:
            for pos, t in enumerate(toks):
                if t[0] == "a":
                    ids[((name, sec, pos), rep)] = n
                    events.append(("a", n, (name, sec, pos)))
                    n += 1
                    continue
                freed = []
                for slot, rule in t[1]:
                    freed += [ids[(slot, j)] for j in chosen(rule, rep, reps_of[slot[0]], reps)]
                events.append(("f", freed))
    return out


def chosen(rule, i, n, reps):
    """Of n repetitions of a slot those that repetition i of reps frees."""
    if rule in ("", "^", "$"):
        return [None] if not rule or i == (0 if rule == "^" else reps - 1) else []
    if rule[0] == "*":
        j, k = rule[1:].split(":")
        return list(range(int(j), n - int(k)))
    return [j for j in [at(rule[0], int(rule[1:]), i, n)] if 0 <= j < n]

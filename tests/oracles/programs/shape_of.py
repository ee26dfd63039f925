"""From recordings with different layer counts to one program whose blocks repeat.

A model has groups of equal blocks: one, or two (encoder and decoder). A phase is a list of sections; one that belongs to a group is a body
and runs once a block of it, less its irregular ones, which are in the sections beside it. An allocation has a slot: its phase, section and
position; in a body one a repetition. What is freed is a slot and a rule that says of which repetitions:
  ""      the slot is in no body            "*j:k"  of all but the first j and the last k
  "i+j"   the repetition that runs, + j     "r+j"   the same counted from the other end     (in bodies, if there is one)
  "s+j"   number j                          "e+j"   number j from the end                   (elsewhere)
  "^"     in the first repetition only      "$"     in the last one only                    (in bodies, of slots in none)
"""
import itertools

NEAR = 30         # places of a group that are tried first


class Mismatch(Exception):
    pass


def tokens(events, letters):
    """As a string, a letter for each size and one for what is freed, so that repetitions are compared quickly."""
    return "".join(chr(letters.setdefault(e[2] if e[0] == "a" else None, len(letters))) for e in events)


class Phase:
    """lengths[i]: of run i, blocks of each group. The first run is the base; the others differ from it in one group."""

    def __init__(self, name, lengths, runs, alone=()):
        self.name, self.alone = name, alone
        self.lengths, self.runs = lengths, runs
        letters = {}
        self.toks = [tokens(r[name], letters) for r in runs]

    def candidates(self):
        """Lists of bodies (group, irregular blocks, start in the base run, length), in order of their start, best first."""
        alone = sorted((b for b in self.alone if b), key=lambda b: b[2])
        if self.alone and self.are_apart(alone):         # where all blocks look alike, each group's are found at the first place
            yield alone
        found = [list(self.bodies_of(g)) for g in range(len(self.lengths[0]))]
        if [] in found:
            raise Mismatch("%s: no body repeats" % self.name)
        if len(alone) == 2 and len(found) == 2:
            yield from self.nearest(found, alone)
        for x in itertools.product(*found):
            x = sorted((b for b in x if b), key=lambda b: b[2])
            if self.are_apart(x):
                yield x

    def nearest(self, found, alone):
        """Of two groups those that lie close behind each other, near behind where the one before repeats alone, which it does nowhere before."""
        before, behind = [found[b[0]] for b in alone]
        _, irregular, at, _ = alone[0]
        lists = []
        for x in [b for b in before if b[1] == irregular and b[2] >= at][:NEAR]:
            rest = [b for b in behind if b[1] == alone[1][1] and b[2] >= self.end_of(x)][:NEAR]
            lists += [(2 * (x[2] - at) + b[2] - self.end_of(x), [x, b]) for b in rest]
        for _, x in sorted(lists, key=lambda pair: pair[0]):
            yield x

    def end_of(self, b):
        return b[2] + (self.lengths[0][b[0]] - b[1]) * b[3]

    def are_apart(self, bodies):
        return all(self.end_of(a) <= b[2] for a, b in zip(bodies, bodies[1:]))

    def bodies_of(self, g):
        """Of one group, or None where the phase does not depend on it."""
        same = [i for i, l in enumerate(self.lengths) if all(l[h] == self.lengths[0][h] for h in range(len(l)) if h != g)]
        lengths, toks = [self.lengths[i][g] for i in same], [self.toks[i] for i in same]
        n = [len(t) for t in toks]
        steps = {(n[i + 1] - n[i], lengths[i + 1] - lengths[i]) for i in range(len(n) - 1)}
        if len({a * 1000 // b for a, b in steps}) != 1:
            raise Mismatch("%s: %s events for %s blocks" % (self.name, n, lengths))
        per = (n[1] - n[0]) // (lengths[1] - lengths[0])
        if per == 0:
            yield None
            return
        t0, tn, ln = toks[0], toks[-1], lengths[-1]
        for irregular in range(lengths[0]):
            reps = ln - irregular
            for start in range(len(tn) - reps * per + 1):
                if tn[start:start + (reps - 1) * per] != tn[start + per:start + reps * per]:
                    continue
                if all(t == tn[:start] + tn[start:start + per] * (l - irregular) + tn[start + reps * per:]
                       for t, l in zip(toks, lengths)):
                    yield g, irregular, start, per

    def sections(self, bodies, l):
        """Of a run with l blocks: (group or None, irregular, start, length of one repetition, repetitions) in order."""
        out, at, base = [], 0, 0
        end = len(self.toks[self.lengths.index(l)])
        for g, irregular, start, per in bodies:
            fixed = start - base
            out.append((None, 0, at, fixed, 1))
            out.append((g, irregular, at + fixed, per, l[g] - irregular))
            at += fixed + per * (l[g] - irregular)
            base = start + per * (self.lengths[0][g] - irregular)
        return out + [(None, 0, at, end - at, 1)]


def places(sections):
    """Of each event of a phase its section, the repetition (None in no body), its position there."""
    for k, (g, _, _, per, reps) in enumerate(sections):
        for rep in range(reps) if g is not None else (None,):
            for pos in range(per):
                yield k, rep, pos


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
        for deltas in ((-1,), (0,), (1,), (-2,), (2,), (0, 1), (-1, 0), (-3,), (-4,), (-5,), (-6,)):
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


def bodies_alone(names, lengths, runs):
    """Phase -> a body of each group, or None: those that repeat while the other group's blocks are events like others."""
    out = {n: [] for n in names}
    for g in range(len(lengths[0])):
        same = [i for i, l in enumerate(lengths) if l[:g] + l[g + 1:] == lengths[0][:g] + lengths[0][g + 1:]]
        program = generalise(names, [(lengths[i][g],) for i in same], [runs[i] for i in same])
        for name, sections in program:
            at = [len(s[2]) for s in sections]
            out[name].append((g, sections[1][1], at[0], at[1]) if len(sections) > 1 else None)
    return out


def generalise(names, lengths, runs, apart=False):
    """names of phases in order; runs[i] is a recording's phases for lengths[i], a tuple of blocks a group. Returns the program:
    [(phase, [(group or None, irregular, tokens)])], tokens being ("a",) or ("f", [(slot, rule)]). apart: no phase has blocks of two groups."""
    def go(k, wheres, reps):
        if k == len(names):
            return []
        phase = Phase(names[k], lengths, runs, alone.get(names[k], ()))
        why = None
        for bodies in phase.candidates():
            cuts = [phase.sections(bodies, l) for l in lengths]
            try:
                for some in (longest, range(len(lengths))):         # what does not fit the longest runs is soon passed over
                    new, count = located(phase, cuts, some, wheres, reps)
                    sections = frees(phase, cuts, some, new, count)
                return [(names[k], sections)] + go(k + 1, new, count)
            except Mismatch as e:
                why = why or e
        raise why or Mismatch("%s: no body repeats" % names[k])

    def located(phase, cuts, some, wheres, reps):
        """Where what each run allocates is in the sections, and how often these are repeated."""
        new, count = [[dict(x) if run in some else {} for run, x in enumerate(of)] for of in (wheres, reps)]
        for run in some:
            for e, (sec, rep, pos) in zip(runs[run][phase.name], places(cuts[run])):
                if e[0] == "a":
                    new[run][e[1]] = ((phase.name, sec, pos), rep)
            for sec, s in enumerate(cuts[run]):
                count[run][phase.name, sec] = s[4] if s[0] is not None else None
        return new, count

    def frees(phase, cuts, some, wheres, counts):
        out = [{} for _ in cuts[0]]
        table = {}
        for run in some:
            for e, (sec, rep, pos) in zip(runs[run][phase.name], places(cuts[run])):
                if e[0] == "a":
                    out[sec][pos] = ("a",)
                    continue
                groups = {}
                for ident in e[1]:
                    slot, j = wheres[run][ident]
                    groups.setdefault(slot, set()).add(j)
                table.setdefault((sec, pos), []).append((run, rep, groups))
        for (sec, pos), seen in table.items():
            inside = cuts[0][sec][0] is not None
            slots = []
            for slot in sorted({s for _, _, g in seen for s in g}, key=str):
                sets = [g.get(slot, set()) for _, _, g in seen]
                n = [counts[run][slot[:2]] for run, _, _ in seen]
                if n[0] is None and inside:
                    slots += [(slot, r) for r in rules_single([(rep, bool(s), cuts[run][sec][4])
                                                               for (run, rep, _), s in zip(seen, sets)])]
                elif n[0] is None:
                    if not all(s == {None} for s in sets):
                        raise Mismatch("%s frees %s in some blocks only" % (phase.name, slot))
                    slots.append((slot, ""))
                elif inside:
                    slots += [(slot, r) for r in rules_inside([(rep, s, m) for (_, rep, _), s, m in zip(seen, sets, n)],
                                                              slot[0] == phase.name)]
                else:
                    slots += [(slot, r) for r in rules_outside(sets, n)]
            out[sec][pos] = ("f", slots)
        return [(cut[0], cut[1], [toks[i] for i in range(len(toks))]) for cut, toks in zip(cuts[0], out)]

    longest = sorted({max(range(len(lengths)), key=lambda i: lengths[i][g]) for g in range(len(lengths[0]))})
    alone = bodies_alone(names, lengths, runs) if len(lengths[0]) > 1 and not apart else {}
    return go(0, [{} for _ in runs], [{} for _ in runs])


def unroll(program, l):
    """The program for l blocks a group: phase -> events, ids in order, sizes as slots."""
    ids, out = {}, {}
    reps = {(name, k): l[g] - irregular if g is not None else None
            for name, sections in program for k, (g, irregular, _) in enumerate(sections)}
    for name, sections in program:
        events = out[name] = []
        for k, (g, _, toks) in enumerate(sections):
            for rep in range(reps[name, k]) if g is not None else [None]:
                for pos, t in enumerate(toks):
                    if t[0] == "a":
                        ids[((name, k, pos), rep)] = len(ids)
                        events.append(("a", ids[((name, k, pos), rep)], (name, k, pos)))
                        continue
                    freed = []
                    for slot, rule in t[1]:
                        freed += [ids[(slot, j)] for j in chosen(rule, rep, reps[slot[:2]], reps[name, k])]
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

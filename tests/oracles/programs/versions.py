#!/usr/bin/env python3
"""Plays the programs of recordings with the libraries of this Python, and notes in the files which of them are the same.

    versions.py FILE.rec ... [--null build/null] [--only WORD ...] [--without WORD ...] [--missing] [--keep VERDICTS.json] [--shown]

Each program is played once, at the first shape of record.py. Where the events are those of the recording, in its order and its sizes, it
gets a line "also N": N is the file's line of versions. Passed over is what an operator takes and gives back within a phase, below the
phase's peak, as what a mask is made of, and what passes while loading. The line names what else is not there of the recording's allocations, and says "ones" where the inputs have a
mask besides. Anything else differs, is said with the first difference, and gets no line: record.py makes a recording of it in a file
of its own. --only: keys that hold all these words, and none of --without. --missing: those that have no line yet. --keep: what was found before is kept there, and not
played again. --shown: write lines from there, play nothing.
"""
import argparse
import difflib
import json
import os
import re
import sys
import time

import families
import play
import record
import shape_of
import sizes

MOST_ABSENT = 4
LONG = 24         # allocations: what is there for more of them is none of a mask's
WORDS = ("task", "precision", "attention", "mask", "gqa", "tied", "recompute", "lora", "keep_output", "lora_dropout")


def variant_of(key):
    said = dict(w.split("=", 1) for w in key.split())
    return {k: record.number_or_word(said.get(k, record.DEFAULTS.get(k))) for k in WORDS + tuple(record.DEFAULTS)}


def value_of(text, v):
    """A size as the file has it, at a shape."""
    terms, divisor = re.fullmatch(r"(.*?)(?:/(\d+))?", text).groups()
    total = 0
    for term in re.split(r"\+(?![^(]*\))", terms):
        n = 1
        for word in re.split(r"\*(?![^(]*\))", term):
            n *= int(word) if word.isdigit() else v.get(word, 0)
        total += n
    return total // int(divisor or 1)


class Program:
    """A program of a file, as shape_of.unroll() takes it; sizes[slot], and names[slot] as a line of the file has it."""

    def __init__(self, file, lines):
        in_file = {}
        for name, of_file in record.NAMES.items():
            in_file[of_file] = name
        self.sections, self.sizes, self.names = [], {}, {}
        order, slots = [], {}
        for line in lines:
            if not line.startswith("phase "):
                continue
            words = line.split()[1:]
            name = in_file[words[0]]
            order.append(name)
            sections = []
            for k, word in enumerate(words[1:]):
                part, _, group = word.partition("*")
                toks = []
                n = 0
                for token in file.parts[int(part)].split() if part != "-" else []:
                    if token[0] == "-":
                        free = re.fullmatch(r"-(<*)([a-g]?)(\d+)(.*)", token).groups()
                        if not (toks and toks[-1][0] == "f"):
                            toks.append(("f", []))
                        toks[-1][1].append((free, (len(order) - 1, k)))
                        continue
                    slot = (name, k, len(toks))
                    slots[len(order) - 1, k, n] = slot
                    self.sizes[slot] = file.sizes[int(re.match(r"[A-Z](\d+)", token).group(1))]
                    self.names[slot] = "%s %s%d" % (words[0], "abcdefg"[k], n)
                    toks.append(("a",))
                    n += 1
                sections.append((int(group.split("-")[0]) if group else None, int(group.split("-")[1]) if group else 0, toks))
            self.sections.append((name, sections))
        for name, sections in self.sections:
            for k, (group, irregular, toks) in enumerate(sections):
                for i, t in enumerate(toks):
                    if t[0] == "f":
                        toks[i] = ("f", [(self.meant(slots, free, at), free[3]) for free, at in t[1]])

    @staticmethod
    def meant(slots, free, at):
        back, letter, number, _ = free
        phase = at[0] - len(back)
        return slots[phase, "abcdefg".index(letter) if letter else at[1], int(number)]


class Events:
    """Of one run: allocations by phase as (id, bytes, slot), and for each when it goes: (phase, how many of mine came before there)."""

    def __init__(self, names, phases, bytes_of):
        self.allocs = {n: [(e[1], bytes_of(e), e[2]) for e in phases.get(n, []) if e[0] == "a"] for n in names}
        self.names, self.phases = names, phases
        every = {e[0] for n in names for e in self.allocs[n]}
        gone, born = self.gone(every), {e[0]: (n, i) for n in names for i, e in enumerate(self.allocs[n])}
        self.places = gone
        self.lives = {i: "on" if gone.get(i, (None,))[0] != born[i][0] else "long" if gone[i][1] - born[i][1] > LONG else "short" for i in every}

    def all_peaks(self):
        return self.peaks({i for n in self.names for i, _, _ in self.allocs[n]})

    def of(self, names):
        return [e for n in names for e in self.allocs[n]]

    def stays(self, i, names):
        return self.places.get(i, (None,))[0] not in names

    def gone(self, mine):
        """id -> place of its free, counted in the allocations of mine."""
        out = {}
        for name in self.names:
            n = 0
            for e in self.phases.get(name, []):
                if e[0] == "a":
                    n += e[1] in mine
                else:
                    out.update((i, (name, n)) for i in e[1] if i in mine)
        return out

    def peaks(self, mine):
        """phase -> most bytes at once of mine."""
        size = {i: b for name in self.names for i, b, _ in self.allocs[name]}
        now, out = 0, {}
        for name in self.names:
            most = now
            for e in self.phases.get(name, []):
                if e[0] == "a":
                    now += size[e[1]] * (e[1] in mine)
                    most = max(most, now)
                else:
                    now -= sum(size[i] for i in e[1] if i in mine)
            out[name] = most
        return out


def held(program, run, names, shape, blocks):
    """{"with": words of an "also" line}: the run is the program but for those; or {"differs": where}."""
    there, names = names, [n for n, _ in program.sections]
    phases = {n: list(run.phases.get(n, [])) for n in names}
    for before, name in zip(there, there[1:]):         # the oldest programs have the end of the output in their forward pass
        if name not in phases and name.startswith("output") and before in phases:
            phases[before] += run.phases[name]
    if [n for n in there if n in phases] != names:
        return {"differs": "other phases"}
    unrolled, at = shape_of.unroll(program.sections, blocks), sizes.values(shape)
    a = Events(names, unrolled, lambda e: value_of(program.sizes[e[2]], at))
    b = Events(names, phases, lambda e: e[2])
    pairs = {}
    loading = [n for n in names if n in play.LOADING]
    for group in [loading] + [[n] for n in names if n not in loading]:
        x, y = a.of(group), b.of(group)
        if group == loading:         # what stays; how adapters came to their format is how peft made them
            x, y = [e for e in x if a.stays(e[0], loading)], [e for e in y if b.stays(e[0], loading)]
        for i, j, n in aligned([(e[1], a.lives[e[0]]) for e in x], [(e[1], b.lives[e[0]]) for e in y]):
            pairs.update((x[i + k][0], y[j + k][0]) for k in range(n))
    other = True
    while other:         # what passes need not go at the same place
        left, right = a.gone(set(pairs)), b.gone(set(pairs.values()))
        other = [i for i, j in pairs.items() if left.get(i) != right.get(j)]
        if any(a.lives[i] != "short" for i in other):
            return {"differs": "freed elsewhere: %s" % [(right.get(pairs[i]), left.get(i)) for i in other if a.lives[i] != "short"][:2]}
        for i in other:
            del pairs[i]
    matched = set(pairs.values())
    more = [(name, e) for name in names for e in b.allocs[name] if e[0] not in matched]
    words, own = [], set(matched)
    stays, passing = part(b, more, loading)
    for name, e in stays:
        if name != "inputs" or e[1] != 8 * shape["B"] * shape["S"] or words:
            return {"differs": "%s: %d bytes more" % (name, e[1])}
        words.append("ones")
        own.add(e[0])
    left_out, gone = part(a, [(name, e) for name in names for e in a.allocs[name] if e[0] not in pairs], loading)
    slots = {e[2] for _, e in left_out}
    if any(e[2] in slots for name in names for e in a.allocs[name] if e[0] in pairs):
        return {"differs": "missing in some blocks only: %s" % sorted(program.names[s] for s in slots)[:3]}
    if len(slots) > MOST_ABSENT:
        return {"differs": "%d allocations are missing, as %s" % (len(slots), sorted("%s (%s)" % (program.names[s], program.sizes[s]) for s in slots)[:3])}
    large = [(name, e[1]) for name, e in passing + gone if name not in loading and not is_small(e[1], shape)]
    if large:
        return {"differs": "%s: %d bytes pass" % large[0]}
    for run, own, of in ((b, own, passing), (a, set(pairs), gone)):
        plain, whole = run.peaks(own), run.peaks(own | {e[0] for _, e in of})
        higher = [n for n in names if plain[n] != whole[n] and n not in loading]
        if higher:
            return {"differs": "%s: what passes makes the peak higher, %s" % (higher[0], [e[1] for n, e in of if n == higher[0]][:6])}
    return {"with": words + sorted(program.names[s].replace(" ", ":") for s in slots), "passing": len(passing), "passed": len(gone), "loads": max([0] + [a.all_peaks()[n] - b.all_peaks()[n] for n in loading], key=abs)}


def is_small(n, shape):
    """What masks, positions and counts are made of: some bytes a token, or a pair of tokens."""
    of_pairs = shape["S"] * shape["S"]
    return n <= 32 * shape["B"] * shape["S"] or n % of_pairs == 0 and n <= 8 * shape["B"] * of_pairs


def part(run, allocations, loading):
    """Of (phase, allocation): those that stay beyond their phase, or beyond loading, and those that pass."""
    out = [[], []]
    for name, e in allocations:
        out[not run.stays(e[0], loading if name in loading else [name])].append((name, e))
    return out


def aligned(x, y):
    """Runs of equal sizes, (start, start, length), in order; ends with one of no length."""
    if x == y:
        return [(0, 0, len(x)), (len(x), len(y), 0)]
    return difflib.SequenceMatcher(None, x, y, autojunk=False).get_matching_blocks()


def blocks_of(v, family):
    f = families.FAMILIES[family]
    least = 8 if v["offload"] and v["trainer"] in play.TRL else 2 if f.repeats(v) > 1 else 4
    groups = len(f.layers.split()) + bool(v["liger"]) + (v["freeze"] == "layers")
    return (least,) * groups


def shown(file, family, key):
    import torch
    torch.backends.cudnn.enabled = False
    v = variant_of(key)
    shape, blocks = families.shapes(family, v, 1)[0], blocks_of(v, family)
    program = Program(file, file.programs[key])
    run = record.play_once(v, family, shape, blocks)
    return held(program, run, record.phases_of(v), record.with_layers(v, family, shape, blocks), blocks)


def keep(path, known):
    if path:
        with open(path + ".tmp", "w") as f:
            json.dump(known, f)
        os.rename(path + ".tmp", path)


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("files", nargs="+")
    p.add_argument("--null", default="build/null")
    p.add_argument("--only", nargs="*", default=[])
    p.add_argument("--without", nargs="*", default=[])
    p.add_argument("--missing", action="store_true")
    p.add_argument("--keep")
    p.add_argument("--shown", action="store_true")
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null))
    record.begin()
    known = json.load(open(a.keep)) if a.keep and os.path.exists(a.keep) else {}
    kinds = {f.kind: name for name, f in families.FAMILIES.items()}
    for path in a.files:
        file = record.File(path)
        family, name = kinds[next(x for x in file.head if x.startswith("family ")).split()[1]], os.path.basename(path)
        number = file.also(record.versions(file))
        counts = {}
        for key in list(file.programs):
            if not all(w in key.split() for w in a.only) or any(w in key.split() for w in a.without) or a.missing and any(x.startswith("also %d" % number) for x in file.programs[key]):
                continue
            t = time.time()
            of_key = "%s %s %s" % (record.versions(file), name, key)
            if of_key not in known and not a.shown:
                got = known[of_key] = play.in_child(lambda: shown(file, family, key))
                keep(a.keep, known)
                word = got.get("failed") or got.get("differs") or " ".join(["same"] + got["with"])
                sys.stderr.write("%s %s: %s (%.1f s)\n" % (name, key, word, time.time() - t))
            got = known.get(of_key, {})
            if "with" in got:
                file.add_also(key, number, got["with"])
            counts["same" if "with" in got else "other"] = counts.get("same" if "with" in got else "other", 0) + 1
        sys.stderr.write("%s: %s\n" % (name, counts))
        if counts.get("same"):
            file.save(path)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records the training steps of a family: what `vplan estimate --trainer torch|hf|trl` plays.

    record.py FAMILY OUT.rec [--null build/null] [--only WORD=VALUE ...] [--missing] [--like OTHER.rec [--of WORD=VALUE ...]]

Each variant (precision, attention, checkpointing, ...) is played at several shapes and layer counts. A size that is no exact
expression of the symbols on every shape, or an order of events that does not repeat with the layers, ends that variant with its
reason. README.md beside this file has the format.
"""
import argparse
import gc
import itertools
import os
import re
import sys
import time
from math import gcd

import families
import play
import shape_of
import sizes

N_SHAPES, N_SMALL = 6, 3
STEP, EVALUATION = ["prefix", "forward", "reference", "output", "backward", "ending"], ["evaluate", "output"]
NAMES = dict([(n, n) for n in play.LOADING + ("inputs",)] + [(n + "2", n) for n in EVALUATION[:1] + STEP] + [(n + "3", n + "_more") for n in STEP])
# Words of a key that are left out at these values.
DEFAULTS = dict(adapter="fp32", dora=0, save="none", tokens=0, quantised="none", dropout=1, window=0, ragged=0, wide=0, upcast=0, trainer="torch", liger=0, eval=0, offload=0, freeze="none", partial=0, regression=0, one=0, packed=0, resized=0, beta=0, images=0, rest=0)


def phases_of(v):
    """Of a program. "output" is where the model's output is let go of; "prefix" and "ending" are what is done to virtual tokens of all layers
    before the forward pass and behind the backward pass; or the passes of frozen layers; "reference" and "ending" are DPO's reference, or the loss on
    routers and the layers' own backward pass, which comes behind that loss's."""
    other = [n + "2" for n in EVALUATION[:1]] if not v["eval"] else [n + i for n in STEP for i in "23" if n + i != "output2"]
    return [n for n in NAMES if not (n in other or n.startswith("adapters") and v["lora"] == "none" or n == "adapters_cast" and v["lora"] in play.PROMPTS or n in ("upcast", "biases") and not v["upcast"]
                                      or n == "expert_adapters" and not (play.EXPERTS and v["lora"] == "all-linear")
                                      or n == "halved" and (v["trainer"] not in play.TRL or v["quantised"] == "none")
                                      or n == "load_reference" and not play.has_reference(v)
                                      or n.startswith("reference") and v["trainer"] != "dpo" and not play.weighs_routers(v)
                                      or n.startswith("prefix") and not play.is_prefixed(v)
                                      or n.startswith("ending") and v["lora"] != "prefix" and v["freeze"] != "layers" and not play.weighs_routers(v)
                                      or n == "load_trained" and v["freeze"] != "layers" or n.startswith("ending") and v["freeze"] == "layers" and v["recompute"] == "none"
                                      or n.startswith("output") and not play.has_output(v))]


def key_of(v):
    return " ".join("%s=%s" % (k, x) for k, x in v.items() if DEFAULTS.get(k) != x)


# Lines of a file before its programs, beside sizes and parts.
HEAD = ("vplan-recording", "family", "versions", "also", "device", "field", "requires")


class Refused(Exception):
    pass


def is_of_classes(v):
    """A head of classes is tied to no table."""
    return v["task"] in ("seqcls", "tokcls")


def is_worth_it(v, family, asked):
    """Leaves out what differs in nothing, or nobody runs, unless it was asked for: sdpa without flash attention with a mask."""
    sdpa = v["attention"] != "eager"
    if (v["gqa"], v["tied"]) not in family.combos:
        return False
    if (v["lora"] != "none" or is_of_classes(v)) and v["tied"] and (v["gqa"], 0) in family.combos and not v["tokens"]:     # a line of the untied program says what the tied one is
        return False
    biased = "W" in family.symbols()     # T5's distances are a mask to sdpa
    typed = v["images"] and family.images.get("typed")
    if v["ragged"] and not (sdpa and (v["mask"] or v["window"] or biased or typed or v["lora"] == "prefix")):
        return False
    if v["window"] and not family.window or v["mask"] and (v["task"] == "imgcls" or "c" in family.symbols()):
        return False
    return "attention" in asked or v["attention"] in ("sdpa:flash", "eager") or not (v["mask"] or v["window"])


def variants(name, only):
    family = families.FAMILIES[name]
    axes = dict(task=[family.task], precision=["fp32", "bf16-mixed", "bf16", "bf16-amp"],
                attention=["sdpa:flash", "eager", "sdpa:efficient", "sdpa:math"], mask=[0, 1], gqa=[0, 1, 2], tied=[0, 1],
                recompute=["none", "full"], lora=["none"], keep_output=[0], lora_dropout=[0])
    axes.update((k, [x]) for k, x in DEFAULTS.items())
    axes.update(dropout=[1, 0] if play.has_dropout(family) else [1], window=[0, 1], ragged=[0, 1], wide=list(family.wide), partial=list(family.partial))
    for word in only:
        key, value = word.split("=", 1)
        axes[key] = [number_or_word(x) for x in value.split(",")]
    asked = [word.split("=")[0] for word in only]
    for values in itertools.product(*axes.values()):
        v = dict(zip(axes, values))
        if is_worth_it(v, family, asked):
            yield v


def variants_like(path, only, of):
    """The programs of another file with the words of only set; where that is the attention, those that run flash attention. of: words that they have there."""
    words = ("task", "precision", "attention", "mask", "gqa", "tied", "recompute", "lora", "keep_output", "lora_dropout")
    for line in open(path):
        kind, _, key = line.split(" = ")[0].strip().partition(" ")
        if kind not in ("program", "same"):
            continue
        said = dict(w.split("=", 1) for w in key.split())
        v = {k: number_or_word(said.get(k, DEFAULTS.get(k))) for k in words + tuple(DEFAULTS)}
        if v["lora"] == "none" and "lora_dropout=1" in only or any(str(v[w.split("=")[0]]) not in w.split("=")[1].split(",") for w in of):
            continue
        flash = v["attention"] == "sdpa:flash" and v["precision"] != "fp32" and not v["ragged"]
        flash = flash and ("attention=flash_attention_2" in only or not (v["mask"] or v["window"]))
        flash = flash or v["mask"] and "attention=flash_attention_2" in only and v["attention"] == "sdpa:efficient" and v["precision"] != "fp32"
        if flash or not any(w.startswith("attention=") for w in only):
            yield dict(v, **{w.split("=")[0]: number_or_word(w.split("=", 1)[1]) for w in only})


def number_or_word(x):
    return int(x) if str(x).isdigit() else x


def is_parted(v, family):
    """Whether the layers of one stack are two groups of blocks, one before the other."""
    return v["freeze"] == "layers" or v["recompute"] == "first" or bool(families.FAMILIES[family].shares)


def play_once(v, family, shape, blocks):
    f = families.FAMILIES[family]
    layers = [n * f.repeats(v) + v["rest"] for n in blocks]
    if v["freeze"] != "none":         # frozen layers are a group of blocks before those that are trained
        v = dict(v, n_frozen=layers[0] if v["freeze"] == "layers" else 0)
    if v["recompute"] == "first":         # recomputed layers likewise, before those that are not
        v = dict(v, n_first=layers[0])
    config = f.config(shape, [sum(layers[:2])] if is_parted(v, family) and not f.shares else layers, v["tied"], v)
    return play.Recording(dict(v, r=shape["r"], x=shape.get("x"), tiles=blocks[-1]), config, shape)


def with_layers(v, family, shape, blocks):
    """The shape of a run with so many blocks, where sizes depend on them: keys and values of all layers are one parameter."""
    f = families.FAMILIES[family]
    return dict(shape, L=sum(blocks[:2] if f.shares else blocks[:1]) * f.repeats(v)) if is_of_all_layers(v, family) else shape


def is_of_all_layers(v, family):
    """Whether there are sizes with the number of layers in them."""
    return v["lora"] == "prefix" or bool(families.FAMILIES[family].shares)


def plain(events, order):
    """Events with ids by order of allocation, so that runs compare."""
    out = []
    for e in events:
        if e[0] == "a":
            order[e[1]] = len(order)
            out.append(("a", order[e[1]]))
        else:
            out.append(("f", tuple(sorted(order[i] for i in e[1]))))
    return out


def whole(phases, names):
    order = {}
    return [plain(phases[n], order) for n in names]


def gaps(run, step):
    """The allocations of a step, each with what is freed before the next one."""
    out = [[None, set()]]
    for name in STEP:
        for e in run.phases.get(name + step, []):
            if e[0] == "a":
                out.append([e[1:], set()])
            else:
                out[-1][1].update(e[1])
    return out


def check_kept(v, family, shape, run, base):
    """That keeping the output changes only when it goes."""
    kept = play_once(dict(v, keep_output=1), family, shape, base)
    for step in "23":
        now, late = gaps(run, step), {i for e in run.phases["output" + step] for i in e[1]}
        for gap in now:
            gap[1] -= late
        now[-1][1] |= late
        if now != gaps(kept, step):
            raise Refused("a step whose output is kept differs in more than when it goes")


def tied_slots(v, family, shape, run, model, base):
    """The slots that a model with tied tables has not; they are there while loading, and nothing else may differ."""
    names, tied = phases_of(v), play_once(dict(v, tied=1), family, shape, base)
    have = [(e[2], x[2]) for n in names for e, x in zip(run.phases[n], model[n]) if e[0] == "a"]
    out = []
    for size in [e[2] for n in names for e in tied.phases[n] if e[0] == "a"] + [None]:
        while have and have[0][0] != size:
            out.append(have.pop(0)[1])
        have = have[1:]
    if any(slot[0] not in play.LOADING for slot in out):
        raise Refused("tied tables change more than what is loaded")
    return out


def told_apart(run, shape):
    """The phases, where weights that no gradient comes to differ from those that are trained: of a tower the last layer, where that before it is taken."""
    phases = alike(run.phases, shape)
    idle = {i for i, p in run.params.items() if not p[1]}
    return {name: [("a", e[1], (e[2], "idle")) if e[0] == "a" and e[1] in idle else e for e in events] if name in play.LOADING else events
            for name, events in phases.items()}


def alike(phases, shape):
    """The phases, where what holds keys and values of all layers has the same size whatever their number."""
    if "L" not in shape:
        return phases
    if "i" in shape:         # inputs of all layers, of tokens or in a weight
        of_all = [m for m in sizes.MONOMIALS if ("L" in m or "HLi" in m or "".join(m).endswith(("(i,L)", "(hiL)"))) and set(m) & {"B", "S"} in (set(), {"B", "S"})]
        of = {c * sizes.value(m, v) // 2: (c, m) for v in [sizes.values(shape)] for m in of_all for c in ({"J": (2, 8), "K": (8,)}.get(m[0][0], (2,)) if len(m) == 1 else (4, 8) if "S" in m else (1, 4, 8))}
        return {name: [e if e[0] == "f" or e[2] not in of else ("a", e[1], of[e[2]]) for e in events] for name, events in phases.items()}
    each, parts = 2 * shape["L"] * shape["k"] * shape["d"] * shape["x"], [c * b for c in (2, 4) for b in (1, shape["B"])]
    return {name: [e if e[0] == "f" or e[2] not in [each * n for n in parts] else ("a", e[1], (e[2] // each,)) for e in events]
            for name, events in phases.items()}


def record(v, family):
    names = phases_of(v)
    shapes = families.shapes(family, v, N_SHAPES + 1)
    groups = len(families.FAMILIES[family].layers.split()) + bool(v["liger"]) + is_parted(v, family)         # tiles of a loss are one
    least = 8 if v["offload"] and v["trainer"] in play.TRL else 2 if families.FAMILIES[family].repeats(v) > 1 else 4         # TRL keeps the last five tensors that it offloads for a while
    least = 7 if "vision_config.deepstack_visual_indexes" in families.FAMILIES[family].extra else least         # the first three are otherwise
    base = (least, 3) if families.FAMILIES[family].shares else (least,) * groups         # the last layers that have keys of others sum no gradients of these yet
    lengths = [base] + [tuple(b + more * (h == g) for h, b in enumerate(base)) for g in range(groups) for more in (1, 2)]
    other = tuple(b + 1 for b in base) if families.FAMILIES[family].shares else tuple(b + 3 - (h == 1) for h, b in enumerate(base))
    repeats = [play_once(v, family, shapes[0], n) for n in lengths]
    runs = [repeats[0]] + [play_once(v, family, s, base) for s in shapes[1:N_SHAPES]]
    for r in repeats + runs:
        first, second = [sum((r.phases[n + i] for n in (EVALUATION if v["eval"] else ("forward", "backward"))), []) for i in "12"]
        if [e[2] if e[0] == "a" else len(e[1]) for e in first] != [e[2] if e[0] == "a" else len(e[1]) for e in second]:
            raise Refused("the first step differs from the second in more than workspaces")
    try:
        program = shape_of.generalise(names, lengths, [told_apart(r, with_layers(v, family, shapes[0], n)) for r, n in zip(repeats, lengths)],
                                      v["freeze"] == "layers")
    except shape_of.Mismatch as e:
        raise Refused(str(e))
    model = shape_of.unroll(program, base)
    for s, r in zip(shapes, runs):
        if whole(model, names) != whole(r.phases, names):
            raise Refused("events in another order at %s" % s)
    played = [(r, with_layers(v, family, s, base), model) for r, s in zip(runs, shapes)]
    if is_of_all_layers(v, family):
        played += [(r, with_layers(v, family, shapes[0], n), shape_of.unroll(program, n)) for r, n in zip(repeats[1:], lengths[1:])]
    slots = fitted(names, played, masks_of(v), v["quantised"] != "none", v["freeze"] == "vision" or v["lora"] != "none")
    owners(program, model, runs[0], slots)
    # other layers and another shape at once: a check that nothing was fitted to
    check = play_once(v, family, shapes[N_SHAPES], other)
    compare(shape_of.unroll(program, other), slots, check, with_layers(v, family, shapes[N_SHAPES], other), {})
    marks, only_large = {}, {}
    for mark, s in families.small_shapes(family, v, N_SMALL):
        compare(model, slots, play_once(v, family, s, base), with_layers(v, family, s, base), only_large.setdefault(mark, {}))
        marks.update((slot, mark) for slot, both in only_large[mark].items() if both == {False})
    if v["trainer"] == "torch" and play.has_output(v) and not v["eval"] and not v["regression"] and v["lora"] != "prefix":         # whose output has the keys and values; a regression's loss keeps it
        check_kept(v, family, shapes[0], repeats[0], base)
    is_untied = families.FAMILIES[family].extra.get("tie_word_embeddings") is False         # and tied would be another model in more
    tied = [] if (v["lora"] == "none" and not is_of_classes(v)) or v["tokens"] or is_untied else tied_slots(v, family, shapes[0], repeats[0], model, base)
    if v["liger"]:
        marks.update(of_tiles(v, family, shapes[0], base, program, slots))
    if v["trainer"] in play.TRL:
        in_tiles(model, names, repeats[0], slots, marks)
    for name in names:
        marks.update({e[2]: "%" + repeats[0].aside[x[1]] for e, x in zip(model[name], repeats[0].phases[name]) if e[0] == "a" and x[1] in repeats[0].aside})
    of_streams(model, names, repeats[0], marks)
    repeats[0].written = written(model, names, repeats[0], slots)
    return program, slots, marks, repeats[0], tied


def written(model, names, run, slots):
    """slot -> the text of a parameter's size that no symbol is in: its sides one by one, for a vector is stepped with others."""
    out = {}
    for name in names:
        for e, x in zip(model[name], run.phases[name]):
            if e[0] == "a" and x[1] in run.params and slots[e[2]][0][1][0][1] == () and run.params[x[1]][3:] and len(run.params[x[1]][3]) > 2:
                out[e[2]] = "*".join(map(str, run.params[x[1]][3]))
    return out


def of_streams(model, names, run, marks):
    """A mark for what is allocated on another stream, whose memory PyTorch keeps apart."""
    for name in names:
        for e, x in zip(model[name], run.phases[name]):
            if e[0] == "a" and x[1] in run.beside and not marks.get(e[2], "").endswith("~"):
                marks[e[2]] = marks.get(e[2], "") + "~"


def in_tiles(model, names, run, slots, marks):
    """What TRL's head makes for one tile: its size is that of the last one, and a mark says that there may be others before it."""
    for name in names:
        for e, x in zip(model[name], run.phases[name]):
            kind = run.tiles.get(x[1]) if e[0] == "a" else None
            if kind:
                (divisor, ((c, m),)), letter = slots[e[2]]
                symbol = {"b": "YB", "h": "YL"}.get(kind, "VL")
                m = tuple(s for s in m if s not in (("V",) if symbol == "VL" else ("B", "n", "l"))) + (symbol,)
                slots[e[2]] = (divisor, [(c, m)]), letter
                if kind != "b":
                    marks[e[2]] = "%" + kind


def of_tiles(v, family, shape, base, program, slots):
    """The slots of a tile of Liger's loss, sizes in YC, the rows of one: B S there are the rows of TILES. Those of the last tile, which is
    smaller, where it is the last repetition, are found by a run that has one."""
    tiles, made = families.TILES, set()
    for slot, ((divisor, terms), letter) in slots.items():
        if divisor % (tiles // 2) == 0:
            common = gcd(tiles, divisor)
            terms = [(c * tiles // common, tuple(s for s in m if s not in "BS") + ("YC",)) for c, m in terms]
            slots[slot] = (divisor // common, terms), letter
            made.add(slot)
    uneven = dict(shape, B=shape["B"] + 1)
    rows, v_of = sizes.values(uneven)["N"] // tiles, sizes.values(uneven)
    lengths = base[:-1] + (tiles + 1,)
    run, model = play_once(v, family, uneven, lengths), shape_of.unroll(program, lengths)
    last = {}
    for name in model:
        for e, x in zip([e for e in model[name] if e[0] == "a"], [e for e in run.phases[name] if e[0] == "a"]):
            if e[2] in made:
                last[e[2]] = [sizes.evaluate(slots[e[2]][0], dict(v_of, YC=n)) == x[2] for n in (rows, v_of["N"] % tiles)]
    if any(sum(x) != 1 for x in last.values()):
        raise Refused("tiles of a loss: %s" % last)
    return {slot: "%t" for slot, x in last.items() if x[1]}


def masks_of(v):
    """Scratch of rows that are taken by a mask: what is learnt from by TRL's trainers, and tokens of pictures."""
    return ("YNR", "YNS") * bool(v["images"]) + ("YR2", "YS2", "YR", "YS") * (v["trainer"] in play.TRL) + ("YMR", "YMS") * bool(v["images"])


def fitted(names, played, masked, quantised, frozen):
    """slot -> (expression,), exact at every shape. played: runs, each with its shape and the program of its length."""
    fit = sizes.Fitter([shape for _, shape, _ in played], masked, quantised, frozen)
    found = {}
    for i, (run, _, model) in enumerate(played):
        for name in names:
            for event, x in zip(model[name], run.phases[name]):
                if event[0] == "a" and found.setdefault(event[2], {}).setdefault(i, x[2]) != x[2]:
                    raise Refused("%s: a size differs between blocks" % name)
    slots, before = {}, ""
    for name in names:
        for slot in [event[2] for event in played[0][2][name] if event[0] == "a"]:
            here = tuple(found[slot].values())
            expression = fit.semaphores(before, here) or fit.fit(here)
            before = sizes.text(expression) if expression else ""
            if expression is None:
                raise Refused("%s: %s bytes at %s" % (name, here, [shape for _, shape, _ in played]))
            if slots.setdefault(slot, (expression,))[0] != expression:
                raise Refused("%s: a size differs between blocks" % name)
    for name in names:
        of_masks([event[2] for event in played[0][2][name] if event[0] == "a"], slots)
    return slots


def of_masks(order, slots):
    """Counting what a mask holds takes as much of many tokens as of their hidden states' elements; finding it, a few allocations later, tells which of both it is."""
    for i, slot in enumerate(order):
        if sizes.text(slots[slot][0]) in ("YR", "YNR", "YMR"):
            found = [t for t in (sizes.text(slots[s][0]) for s in order[i + 1:i + 6]) if t in ("YS", "YNS", "YMS")]
            slots[slot] = ((1, [(1, (found[0].replace("S", "R"),))]),) if found else slots[slot]


def owners(program, model, run, slots):
    """A letter for each slot: P parameter, Z frozen parameter, Q quantised one, U buffer, I input, A kept for backward, C a 16-bit copy of a parameter,
    L logits and loss, G gradient, T the rest."""
    names = list(model)
    phase_of_free = {i: n for n in names for e in model[n] if e[0] == "f" for i in e[1]}
    bytes_of = {e[1]: x[2] for n in names for e, x in zip(model[n], run.phases[n]) if e[0] == "a"}
    ids = {x[1]: e[1] for n in names for e, x in zip(model[n], run.phases[n]) if e[0] == "a"}
    params = {ids[i]: p for i, p in run.params.items()}
    halves = {bytes_of[i] // 2 for i in params}
    for n in names:
        for e in model[n]:
            if e[0] != "a":
                continue
            ident, slot = e[1], e[2]
            expression = slots[slot][0]
            symbols = {s for _, m in expression[1] for s in m}
            freed = phase_of_free.get(ident)
            if n in play.LOADING:
                letter = ("P" if params[ident][1] else "Q" if params[ident][2] else "Z") if ident in params else "U"
                if freed:
                    letter = "T"
            elif n == "inputs":
                letter = "I"
            elif freed is None:
                letter = "G"
            elif {"B", "V"} <= symbols and symbols & {"D", "S", "l"} or {"B", "C"} <= symbols:
                letter = "L"
            elif n.startswith(("forward", "reference")) and freed != n or n.startswith("prefix") and not freed.startswith(("prefix", "forward")):
                letter = "A"
            elif n.startswith(("prefix", "forward", "reference", "evaluate")) and not symbols & {"B", "S", "D", "l"} and bytes_of[ident] in halves and bytes_of[ident] > 4096:
                letter = "C"
            else:
                letter = "T"
            old = slots[slot]
            slots[slot] = (expression, letter if len(old) == 1 else merge(old[1], letter))


def merge(a, b):
    return a if a == b else "A" if "A" in a + b else b


def compare(model, slots, run, shape, only_large):
    """Sizes of run are those of the model at its shape; where a slot is missing, note it: {slot: {False}}."""
    v = sizes.values(shape)
    for name in model:
        a = [(slots[e[2]][0], e[2]) for e in model[name] if e[0] == "a"]
        b = [e[2] for e in run.phases[name] if e[0] == "a"]
        j = 0
        for expression, slot in a:
            want = sizes.evaluate(expression, v)
            if want == 0:
                continue
            if j < len(b) and b[j] == want and only_large.get(slot) != {False}:
                only_large.setdefault(slot, set()).add(True)
                j += 1
            else:
                only_large.setdefault(slot, set()).add(False)
        if j != len(b):
            raise Refused("%s: allocation %d of %d has %s bytes at %s; wanted %s" % (name, j, len(b), b[max(j - 2, 0):j + 3], shape, [(sizes.text(e), sizes.evaluate(e, v)) for e, _ in a][max(j - 2, 0):j + 3]))
    if any(len(x) > 1 for x in only_large.values()) or ({False} in only_large.values() and min(v["N" + t] for t in [""] + list(sizes.LOOK_UPS) if "N" + t in v) > 3072):
        raise Refused("an allocation is there at some shapes only: %s"
                      % [(s, sizes.text(slots[s][0])) for s, x in only_large.items() if False in x][:3])


def refer(number, phases, here, slot):
    """A slot as a part names it: "<" for each phase back, the section's letter unless it is the same, the allocation of the section."""
    back = phases.index(here[0]) - phases.index(slot[0])
    return "<" * back + ("abcdefg"[slot[1]] if back or slot[1] != here[1] else "") + str(number[slot])


def write(v, family, result):
    """The lines of a program; a section is a list of words, with sizes as expressions. The group of tiles is the last there can be."""
    program, slots, large, run, tied = result
    phases = [name for name, _ in program]
    number = {}
    for name, sections in program:
        for k, (_, _, toks) in enumerate(sections):
            for pos in [pos for pos, t in enumerate(toks) if t[0] == "a"]:
                number[name, k, pos] = sum(t[0] == "a" for t in toks[:pos])
    lines = ["program " + key_of(v)]
    if families.FAMILIES[family].repeats(v) > 1:
        lines.append("every %d" % families.FAMILIES[family].repeats(v) + " %d" % v["rest"] * (v["rest"] > 0))
    for slot in tied:
        lines.append("tied %s %s%d" % (NAMES[slot[0]], "abcdefg"[slot[1]], number[slot]))
    for phase, at in run.workspaces if not v["eval"] else []:         # an evaluation has those of the steps before it
        lines.append("workspace %s %d %d" % (NAMES[phase.replace("1", "2")], at[0], at[1]))
    for name, sections in program:
        line = ["phase " + NAMES[name]]
        for k, (group, irregular, toks) in enumerate(sections):
            words = []
            for pos, t in enumerate(toks):
                if t[0] == "a":
                    expression, letter = slots[name, k, pos]
                    words.append((letter, run.written.get((name, k, pos)) or sizes.text(expression), large.get((name, k, pos), "")))
                else:
                    words += ["-%s%s" % (refer(number, phases, (name, k), slot), rule) for slot, rule in t[1]]
            line.append(("" if group is None else "*%d-%d" % (2 if v["liger"] and group == 1 + is_parted(v, family) else group, irregular), words))
        lines.append(line)
    return lines


class File:
    """A recording: texts of sizes and of parts, each once; programs by key."""

    def __init__(self, path):
        self.sizes, self.parts, self.programs, self.head = [], [], {}, []
        key = None
        for line in open(path).read().split("\n")[:-1] if os.path.exists(path) else []:
            word, _, rest = line.partition(" ")
            if word in ("size", "part"):
                (self.sizes if word == "size" else self.parts).append(rest)
            elif not key and (word in HEAD or line[:1] == "#"):
                self.head.append(line)
            elif word == "program":
                key = rest
                self.programs[key] = []
            elif word == "same":
                self.programs[rest.split(" = ")[0]] = self.programs[rest.split(" = ")[1]]
            elif word == "end":
                key = None
            elif key:
                self.programs[key].append(line)

    def number(self, table, text):
        if text not in table:
            table.append(text)
        return table.index(text)

    def add(self, v, lines):
        out = []
        for line in lines[1:]:
            if isinstance(line, list):
                words = [line[0]]
                for group, toks in line[1:]:
                    text = " ".join("%s%d%s" % (t[0], self.number(self.sizes, t[1]), t[2]) if not isinstance(t, str) else t for t in toks)
                    words.append(("%d" % self.number(self.parts, text) if toks else "-") + group)
                line = " ".join(words)
            out.append(line)
        self.programs[key_of(v)] = out

    def also(self, versions):
        """The number of a line of versions with which programs were seen to be the same."""
        lines = [x for x in self.head if x.startswith("also ")]
        for x in lines:
            if x.split(" ", 2)[2] == versions:
                return int(x.split()[1])
        self.head.append("also %d %s" % (len(lines), versions))
        return len(lines)

    def add_also(self, key, number, words):
        """What of a program is otherwise with those versions."""
        rest = [x for x in self.programs[key] if not x.startswith("also %d" % number)]
        self.programs[key] = rest + [" ".join(["also %d" % number] + words)]

    def save(self, path, head=None):
        with open(path + ".tmp", "w") as file:
            file.write(self.text(head or self.head))
        os.rename(path + ".tmp", path)

    def compact(self):
        """Forget sizes and parts that no program has any more."""
        used = sorted({int(w.split("*")[0]) for p in self.programs.values() for x in p if x.startswith("phase ")
                       for w in x.split()[2:] if w[0] != "-"})
        parts = [self.parts[i] for i in used]
        number = {old: new for new, old in enumerate(used)}
        for key, p in self.programs.items():
            self.programs[key] = [" ".join(x.split()[:2] + [w if w[0] == "-" else "*".join([str(number[int(w.split("*")[0])])] +
                                                            w.split("*")[1:]) for w in x.split()[2:]])
                                  if x.startswith("phase ") else x for x in p]
        of = re.compile(r"(?<![-<\w])([A-Z])(\d+)")
        used = sorted({int(m) for p in parts for _, m in of.findall(p)})
        number = {old: new for new, old in enumerate(used)}
        self.parts = [of.sub(lambda m: m.group(1) + str(number[int(m.group(2))]), p) for p in parts]
        self.sizes = [self.sizes[i] for i in used]

    def text(self, head):
        self.compact()
        lines, first = list(head), {}
        lines += ["size " + x for x in self.sizes] + ["part " + x for x in self.parts]
        for key, p in self.programs.items():
            same = first.setdefault(tuple(p), key)
            lines += ["same %s = %s" % (key, same)] if same != key else ["program " + key] + p + ["end"]
        return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("family")
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    p.add_argument("--only", nargs="*", default=[], help="WORD=VALUE,VALUE: these variants; others of OUT stay")
    p.add_argument("--missing", action="store_true", help="only variants that OUT has not")
    p.add_argument("--like", help="in place of drawn variants those of another file, as --only has them")
    p.add_argument("--of", nargs="*", default=[], help="of the other file those programs that have these words")
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null))
    begin()
    if "z" in families.FAMILIES[a.family].symbols():
        import linear
        linear.install()
    play.EXPERTS[:] = [True] * ("E" in families.FAMILIES[a.family].symbols() and families.FAMILIES[a.family].injects)
    play.ROUTED[:] = [True] * ("E" in families.FAMILIES[a.family].symbols())
    play.GATHERED[:] = [True] * (families.FAMILIES[a.family].kind == "deberta-v2")
    out = File(a.out)
    for v in variants_like(a.like, a.only, a.of) if a.like else variants(a.family, a.only):
        if a.missing and key_of(v) in out.programs:
            continue
        if v["recompute"] == "first" and (v["rest"] or v["freeze"] == "layers" or v["lora"] == "prefix" or v["task"] == "seq2seq"):
            continue         # layers in two groups as it is, or a part of a block

        def one(v=v):
            import torch
            torch.backends.cudnn.enabled = False
            return {"lines": write(v, a.family, record(v, a.family))}
        t = time.time()
        got = play.in_child(one)
        sys.stderr.write("%s: %s (%.1f s)\n" % (key_of(v), got.get("failed", "recorded"), time.time() - t))
        if "failed" not in got:
            out.add(v, got["lines"])
            save(a, out)


def begin():
    """Before the first program is played."""
    import torch
    import transformers  # noqa: F401
    import peft  # noqa: F401
    play.quiet()
    torch._C._cuda_getDeviceCount = lambda: 1          # the real one forbids a later fork
    torch.cuda._is_in_bad_fork = lambda: False         # importing bitsandbytes looks at the card; the stand-in's may be forked
    gc.freeze()         # what is imported stays: each run collects its own


def versions(out):
    """This Python's libraries, of which the programs of a file are."""
    from importlib.metadata import version
    of_liger = " liger=" + version("liger-kernel") if any(" liger=" in key for key in out.programs) else ""
    return "torch=%s transformers=%s peft=%s%s" % (version("torch").split("+")[0], version("transformers"), version("peft"), of_liger)


def save(a, out):
    f = families.FAMILIES[a.family]
    head = ["# Recorded training steps; made by tests/oracles/programs/record.py, whose README has the format.",
            "vplan-recording 2", "family " + f.kind,
            "versions " + versions(out), "device capability=%s" % os.environ["VPLAN_NULL_CC"]]
    head += ["field " + x for x in play.fields(f)]
    head += ["requires " + x for x in play.requirements(f, any(" trainer=trl" in key for key in out.programs))]
    out.save(a.out, head + [x for x in out.head if x.startswith("also ")])


if __name__ == "__main__":
    main()

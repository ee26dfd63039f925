"""A size as an exact integer expression of symbols: found from some shapes, true on all, or not found.

An expression is a list of (coefficient, monomial) with a common divisor; a monomial is a tuple of symbols. Derived symbols: S8, S32,
S128 and d32 are sizes rounded up.
"""
import re
from fractions import Fraction
from math import gcd

WIDTHS = ["", "h", "f", "V", "P", "T", "a", "k", "d", "a d", "k d", "q", "a q", "k q", "P q", "dq", "a dq", "k dq", "a dr", "k dr", "h h", "h f", "h V", "h P", "P P", "h T", "h a d", "h k d", "f f",
          "x", "x h", "x L k d", "x k d", "r", "r h", "r f", "r a d", "r k d", "r V", "I I", "h p p", "h n", "n", "g", "h g", "g p p", "n p p", "G", "G a", "GB a", "C", "h C",
          "e", "e n", "e h", "e V", "e r", "c", "c h", "s", "s h", "r s",
          "E", "E h", "E h f", "t", "t h", "t f",
          "v", "a v", "w", "w v", "h a v", "h w v", "r a v", "r w v", "k v", "h k v", "r k v", "i", "h i", "i r", "L i", "L h i", "L V i", "L i r",
          "z", "j", "z h", "j h", "jz", "jz h", "r z", "r jz",
          "im", "im h", "im r", "im it", "im it h", "im it r", "im iv", "im iv h", "im iv r"]
LENGTHS = ["", "S", "S8", "S32", "S128", "S S", "S S8", "S8 S8", "S S32", "S S128", "D", "D32", "D128", "D D", "D S", "D D16", "D S16", "S S16", "u", "l", "y"]
EXTRA = ["B SC z", "EV HLi", "B S L", "B WV a", "B KS a vr", "XG", "e P", "e T", "EP HPe", "ET HTe", "W h", "W r", "B W h", "B S W", "B a S W", "E f", "E r", "E r h", "E r f", "o", "o a", "S u", "B S u", "B a S u", "S u8", "B S u8", "B a S u8", "o a dr", "a a d d", "B SK a dk", "B SQ a", "B SH a", "B WQ a", "B KS a", "NS B S a", "NS B S a dr", "NSD B D a", "NSD B D a dr", "NSC B D a", "NSC B D a dr", "EV HV", "ET HT", "EP HP", "EV", "ET", "EP", "MV", "MT", "MP", "XS", "XU", "XV", "XT", "XP", "B DK a dk", "B DQ a", "B DH a", "W a", "W", "B m", "XR", "XN", "XI", "XE", "XB", "XC", "YR", "YS", "YR2", "YS2", "YP", "YG", "YI", "YM h", "YM d", "XDP", "YMP", "YMS", "YMR", "NVS im", "im in", "XJ", "XQ", "NVJ", "NVW", "V128", "NVO iv", "iv"]
# Look-ups that are not B S rows of a table of their own: those of targets, and of buckets of the distances in both sequences.
LOOK_UPS = {"D": ("B D", "V", "h"), "W": ("S S", "W", "a"), "Z": ("D D", "W", "a")}
EXTRA += [w + t for t in LOOK_UPS for w in ("E", "M", "X", "XS", "XU")] + ["E%s H%s" % (t, t) for t in LOOK_UPS]
# Columns of what is summed over its rows; behind a comma what multiplies the rows, which are B S.
OF_TOWER = ["1024", "4096", "1280", "3840", "5120", "3420", "1152", "4304", "h"]              # columns of what is summed over the rows of a tower
SUMS = ["h", "3 h", "f", "2 f", "a d", "k d", "V", "r", "a", "k", "d", "E", "C", "s", "d,a", "d,k", "v,a", "v,w", "a v", "w v", "v,k", "k v", "i", "i,L", "z", "128,z"]

WEIGHTS = ["adh", "kdh", "hf", "hh", "3hh", "3adh", "2hf", "adh+2kdh", "he", "2adh", "zh", "128zh", "384zh", "256jh+128zh", "avh", "wvh", "kvh", "hi", "hiL", "768h", "1152h", "1536h"]      # elements of what is quantised
FLAGS = ["h", "ad", "f", "e"]                                         # columns of what goes into a product of 8-bit weights

# Of the card that is stood in for: many more multiprocessors than there are, so that what a kernel splits over a card that is not
# full is split at every shape, and seen.
MULTIPROCESSORS, THREADS = 66000, 2048
WORKSPACE_BYTES = 33554432      # of cuBLAS, on compute capability 9.0


def sum_scratch(outputs, inputs, processors=MULTIPROCESSORS, threads=THREADS):
    """Bytes that a sum over the rows of a row-major (inputs, outputs) tensor takes while it runs: (buffer, semaphores). The rule of
    ATen/native/cuda/Reduce.cuh: columns go to lanes, four at a time where they divide; rows to warps, and to several
    thread blocks where a thread would have 256 rows or more and the card is not full."""
    def last_pow2(n):
        return 1 << (n.bit_length() - 1)
    vec = 4 if outputs % 4 == 0 else 2 if outputs % 2 == 0 else 1
    most = 512 // vec
    w0, h0 = min(last_pow2(max(outputs // vec, 1)), most), min(last_pow2(inputs), most)
    width = min(w0, 32)
    height = min(h0, most // width)
    width = min(w0, most // height)
    step_out, step_in = width, 1
    values = inputs
    if values < min(height * 16, 256):
        return 0, 0
    step_in = height
    values = -(-inputs // step_in)
    grid = -(-(outputs // vec) // step_out)
    target = processors * (threads // (width * height))
    if values < 256 or grid > target:
        return 0, 0
    ctas = max(min(-(-target // grid), -(-values // 16)), -(-values // 256))
    if ctas <= 1:
        return 0, 0
    return 4 * outputs * ctas * width * vec, 4 * grid


def any_scratch(inputs, processors=MULTIPROCESSORS, threads=THREADS):
    """Bytes that any() over all of so many booleans takes while it runs, a byte a thread block: the same rule with one output, whose
    inputs go to the 512 threads of a block."""
    values = -(-inputs // 512)
    ctas = max(min(processors * (threads // 512), -(-values // 16)), -(-values // 256))
    return ctas if values >= 256 and ctas > 1 else 0


def flash_splits(rows, queries, lengths, head, processors=MULTIPROCESSORS):
    """Into how many parts flash attention's forward cuts so many keys, 0 for one: rows = batch x heads. The heuristic of flash attention 2
    (num_splits_heuristic), asked where dropout is zero."""
    blocks, n = rows * -(-queries // 64), -(-lengths // (256 if head <= 64 else 128 if head <= 128 else 64))
    slots = 2 * processors
    if blocks >= 0.8 * slots:
        return 0
    most, best, effs = min(128, slots, n), 0.0, []
    for s in range(1, most + 1):
        waves = blocks * s / slots
        ok = s == 1 or -(-n // s) != -(-n // (s - 1))
        effs.append(waves / -(-(blocks * s) // slots) if ok else 0.0)
        best = max(best, effs[-1])
    splits = next(s for s in range(1, most + 1) if effs[s - 1] and effs[s - 1] >= 0.85 * best)
    return splits if splits > 1 else 0


def partial_width(n, rows, width, processors=MULTIPROCESSORS):
    """Columns of the partial sums of a look-up's gradient, n look-ups in a table of so many rows: two where rows are few enough for
    blocks of their own and each is looked up often, which is another kernel (found by trying; torch 2.11)."""
    blocks = -(-width // 1024)
    return 2 if rows * blocks < 4 * processors and n > rows * (40 * blocks - 10) else width


def up(n, m):
    return (n + m - 1) // m * m


def values(shape):
    """With the symbols that follow: YM multiprocessors (0: nothing counts them); J(n) the blocks of 64 in n quantised weights, K(n) those of 256 in J(n); S8, S32, S128 rounded up; dr the head size as flash attention pads it, dk as memory-efficient attention does, dq what of it is not rotated;
    SK its S, SQ and SH blocks of 64 and dk of that; WQ bytes of its backward where d is above 128, WV those of heads of v, vr these rounded up, KS parts that its keys are cut in; n
    patches of an image; g those of one of the size that the config has, G their distances with three more, GB without, XG the scratch of the
    sort in the gradient of all pairs' look-ups; N = B S. RG and QG: of the mean of each picture's patches. Of a look-up of N rows in a table of V (T, P) rows: MV = min(N, V), EV = N / 10 + MV, HV
    partial_width(); NS is flash_splits(), NSD and NSC those of D targets that look at each other and at S. XS, XU, XV the scratch of its sort, of finding
    runs of equal rows, and of their prefix sum (CUB's, compute capability 9.0); XDP that of the sort of D targets' positions where they index a table of P; XB and XC are those of its sort
    and its runs in torch 2.15, whose sort passes over the bits of V alone. YW is cuBLAS's workspace, where each product takes its own (2.15)."""
    v = dict(shape, YW=WORKSPACE_BYTES)
    for m in (8, 16, 32, 128):
        v["S%d" % m] = up(v["S"], m)
    v["u8"] = up(v.get("u", 0), 8)
    v["dr"] = up(v["d"], 32 if v["d"] <= 128 else 64)
    if "q" in v:
        v["dq"] = v["d"] - v["q"]
    n = v["N"] = v["B"] * v["S"]
    v["n"] = v["S"] - 1
    if "l" in v:
        v["y"] = v["S"] - v["l"]
    if "z" in v:
        v["SC"], v["jz"] = -(-v["S"] // 64), 2 * v.get("j", v["z"]) + v["z"]
    if "p" in v:
        v["g"] = (v["I"] // v["p"]) ** 2
        v["GB"] = (2 * (v["I"] // v["p"]) - 1) ** 2
        v["G"] = v["GB"] + 3
        v["XG"] = scratch_of_index(v["S"] * v["S"], v["G"])
    v["YM"] = v.get("M", 0)
    if "im" in v:
        of_pictures(v)
    for t in [t for t in "VTP" if t in v]:
        v["M" + t] = min(n, v[t])
        v["E" + t] = n // 10 + v["M" + t]
        v["H" + t] = partial_width(n, v[t], v["e"] if t == "V" and "e" in v else v["h"])
        if "e" in v:
            v["H%se" % t] = partial_width(n, v[t], v["e"])
        if t == "V" and "i" in v:
            v["HLi"] = partial_width(n, v[t], v.get("L", 0) * v["i"])
        v["XS"], v["XU"], v["X" + t] = scratch_of_look_up(n, v["M" + t])
    v["dk"] = 64 if v["d"] <= 64 else 128
    v["SK"] = up(v["S"], v["dk"])
    v["SQ"], v["SH"] = v["SK"] // 64, v["SK"] // v["dk"]
    dw = up(v["d"], 64)
    v["WQ"] = 4 * v["S128"] * dw + 8 * (v["S128"] // 64) * (dw // 64)
    vw, v["vr"] = up(v.get("v", 0), 64), up(v.get("v", 0), 128)
    v["WV"] = 4 * v["S128"] * vw + 8 * (v["S128"] // 64) * (vw // 64)
    v["KS"] = max(1, min(200 // (v["B"] * v["a"]), -(-v["S"] // 64)))
    v["NS"] = flash_splits(v["B"] * v["a"], v["S"], v["S"], v["d"])
    if "V" in v:
        v["XB"], v["XC"] = scratch_of_index(n, v["V"]) if n > 2304 else 1, 511 + up(16 * (32 + -(-n // 4928)), 256)
    if "t" in v:
        taken = n * v["t"]
        v["XR"], v["XN"], v["XI"] = scratch_of_index(taken, 1 << 63), scratch_of_index(taken, n), scratch_of_index(taken, taken)
        v["XE"] = scratch_of_index(taken, v["E"])
    of_learnt(v)
    if "D" in v:
        of_targets(v)
    for t, (rows, table, width) in LOOK_UPS.items():
        if all(x in v for x in rows.split()) and table in v:
            of_look_ups(v, t, rows, table, width)
    for w in WEIGHTS:
        n_weights = sum(value([int(x) if x.isdigit() else x for x in re.findall(r"\d+|\D", part)], v) for part in w.split("+"))
        v["J(%s)" % w] = -(-n_weights // 64)
        v["K(%s)" % w] = -(-v["J(%s)" % w] // 256)
    for w in FLAGS:
        v["A(%s)" % w] = any_scratch(n * value(list(w), v))
    for w in SUMS:
        outputs, rows = (value([int(x) if x.isdigit() else x for x in part.split()], v) for part in (w + ",").split(",")[:2])
        for i, letter in enumerate("RQ"):
            v["%s(%s)" % (letter, w.replace(" ", ""))] = sum_scratch(outputs, n * rows)[i] if outputs * rows else 0
            v["%sG(%s)" % (letter, w.replace(" ", ""))] = sum_scratch(v["B"] * outputs, v["n"])[i] if w == "h" and "p" in v else 0
            if "D" in v:
                v["%sD(%s)" % (letter, w.replace(" ", ""))] = sum_scratch(outputs, v["ND"] * rows)[i] if outputs * rows else 0
    return v


def of_pictures(v):
    """What follows from im pictures that a tower makes iv rows of, and the text it tokens: NV, its rows; NVS, the parts that flash attention cuts them in, of ia heads of
    id; where their tokens are put among all others, YMP, the scratch of the prefix sum over the mask, an element of each hidden state; YMR and YMS
    that of counting and finding what it holds, YNR and YNS of a mask over tokens, XQ of the sort in the gradient of those that it holds; XJ of tokens in another
    order."""
    v["NV"] = v["im"] * v["iv"]
    n = v["N"] * v["h"]
    v["YMP"] = 511 + up(16 * (32 + -(-n // 896)), 256)
    v["YMR"] = 255 + up(160 * MULTIPROCESSORS, 256) if n > 4096 else 1
    v["YMS"] = 511 + up(8 * (32 + -(-n // 4224)), 256)
    v["YNR"] = 255 + up(160 * MULTIPROCESSORS, 256) if v["N"] > 4096 else 1
    v["YNS"] = 511 + up(8 * (32 + -(-v["N"] // 4224)), 256)
    v["NVS"] = flash_splits(v["im"] * v["ia"], v["iv"], v["iv"], v["id"])
    v["NVO"] = flash_splits(v["ia"], v["iv"], v["iv"], v["id"])
    v["V128"] = up(v["iv"], 128)
    v["NI"] = v["im"] * v["it"]
    v["NVJ"], v["NVW"] = v["NV"] + 128 * v["im"], v["NV"] + 128 * v["im"] * v.get("in", 1)
    v["XJ"], v["XQ"] = [scratch_of_index(v["NI"], v[rows]) if v["NI"] > 2304 else 1 for rows in ("NI", "N")]
    for width in OF_TOWER:
        for letter, rows in (("V", v["NV"]), ("I", v["NI"])):
            v["R%s(%s)" % (letter, width)], v["Q%s(%s)" % (letter, width)] = sum_scratch(v["h"] if width == "h" else int(width), rows)


def n_learnt(shape):
    """Tokens of a sequence that are learnt from: its completion where a shape has one (l), else all but the last."""
    return shape.get("l") or shape["S"] - 1


def of_learnt(v):
    """Scratch of taking the rows that are learnt from, all but a sequence's last, by a mask: counting them, finding where they are, the
    prefix sum that puts them back, the sort in their gradient (CUB's, compute capability 9.0)."""
    n = v["B"] * v["n"]
    for half, rows in (("", n), ("2", n // 2)):
        v["YR" + half] = 255 + up(160 * MULTIPROCESSORS, 256) if rows > 4096 else 1
        v["YS" + half] = 511 + up(8 * (32 + -(-rows // 4224)), 256)
    v["YP"] = 511 + up(16 * (32 + -(-n // 896)), 256)
    v["YG"], v["YI"] = [scratch_of_index(x, v["N"]) if x > 2304 else 1 for x in (v["B"] * n_learnt(v), v["N"])]


def of_targets(v):
    """What follows from D, the sequence of targets, as values() has it of S, and from W, buckets of distances: LOOK_UPS."""
    for m in (16, 32, 128):
        v["D%d" % m] = up(v["D"], m)
    v["DK"], v["m"] = up(v["D"], v["dk"]), v["D"] - 1
    v["DQ"], v["DH"] = v["DK"] // 64, v["DK"] // v["dk"]
    if "P" in v:
        n = v["B"] * v["D"]
        v["XDP"] = scratch_of_index(n, v["P"] - 1) if n > 2304 else 1
    v["NSD"], v["NSC"] = [flash_splits(v["B"] * v["a"], v["D"], keys, v["d"]) for keys in (v["D"], v["S"])]


def of_look_ups(v, t, rows, table, width):
    """Of a row of LOOK_UPS."""
    n = v["N" + t] = value(rows.split(), v)
    v["M" + t] = min(n, v[table])
    v["E" + t] = n // 10 + v["M" + t]
    v["H" + t] = partial_width(n, v[table], v[width])
    v["XS" + t], v["XU" + t], v["X" + t] = scratch_of_look_up(n, v["M" + t])


def scratch_of_look_up(n, rows):
    """Of its sort, of finding runs of equal rows, and of their prefix sum (CUB's, compute capability 9.0)."""
    return (255 + 2 * up(8 * n, 256) + 16640 + 1024 * -(-n // 4608), 511 + up(16 * (32 + -(-n // 4480)), 256),
            511 + up(16 * (32 + -(-rows // 896)), 256))


def scratch_of_index(n, rows):
    """Of the sort in the gradient of n rows taken from so many: the passes of eight bits that a row's number needs; with one pass
    nothing is kept between them."""
    passes = -(-rows.bit_length() // 8)
    return 511 + 2 * up(8 * n, 256) * (passes > 1) + 2048 * passes + 1024 * -(-n // 4608)


def monomials():
    out = []
    for w in WIDTHS:
        for s in LENGTHS:
            for b in ("", "B"):
                m = tuple(sorted((b + " " + s + " " + w).split()))
                if m not in out:
                    out.append(m)
    out += [tuple(e.split()) for e in EXTRA]
    sums = [("%s(%s)" % (letter, w.replace(" ", "")),) for w in SUMS for letter in ("R", "Q", "RD", "QD")] + [("RG(h)",), ("QG(h)",)]
    sums += [("%s(%s)" % (letter, w),) for w in OF_TOWER for letter in ("RV", "QV", "RI", "QI")]
    sums += [("%s(%s)" % (letter, w),) for w in WEIGHTS for letter in "JK"] + [("A(%s)" % w,) for w in FLAGS]
    return sums + sorted(out, key=lambda m: (len(m), sum(map(len, m)), m))


MONOMIALS = monomials()


def value(monomial, v):
    n = 1
    for s in monomial:
        n *= s if isinstance(s, int) else v.get(s, 0)
    return n


def evaluate(expression, v):
    divisor, terms = expression
    n = sum(c * value(m, v) for c, m in terms)
    assert n % divisor == 0, "%s at %s" % (text(expression), v)
    return n // divisor


def text(expression):
    divisor, terms = expression
    if expression == (1, [(WORKSPACE_BYTES, ())]):
        return "YW"
    words = "+".join("*".join([str(c)] * (c != 1 or not m) + list(m)) for c, m in terms)
    return words if divisor == 1 else "%s/%d" % (words, divisor)


def is_scratch(monomial):
    """Whether it is that of a sum."""
    return monomial[:1] != () and monomial[0].startswith(("R(", "Q(", "RD(", "QD(", "RG(", "QG(", "RV(", "QV(", "RI(", "QI("))


class Fitter:
    """For one set of shapes. frozen: a tower has no gradients that are summed over its rows, as biases and norms have. masked: scratch of rows that are taken by a mask, which is the same at all shapes. quantised: weights have scales, whose
    multiples whole weights are too."""

    def __init__(self, shapes, masked=(), quantised=True, frozen=False):
        self.shapes = [values(s) for s in shapes]
        self.columns = {}
        for m in MONOMIALS:
            without = ("J(", "K(") * (not quantised) + ("RV", "QV", "RI", "QI") * frozen
            if all(s in self.shapes[0] for s in m) and not (m and m[0].startswith(without)):
                col = tuple(value(m, v) for v in self.shapes)
                if min(col) > 0 and (not m or len(set(col)) > 1):
                    self.columns.setdefault(col, m)        # of equal ones the shortest
        self.known = {}
        for each in self.parts_of_tower():
            self.known[tuple(each * v["NVS"] * v["im"] for v in self.shapes)] = 1, [(each, ("NVS", "im"))]
        for m in masked:
            self.known[tuple(v[m] for v in self.shapes)] = 1, [(1, (m,))]

    def parts_of_tower(self):
        """Bytes of one part that flash attention cuts a picture's keys in: its sums and its output. At all shapes there are as many."""
        v = self.shapes[0]
        return [4 * v["ia"] * v["iv"] * n for n in (1, up(v["id"], 32))] if "NVS" in v and len({x["iv"] for x in self.shapes}) == 1 else []

    def fit(self, sizes):
        sizes = tuple(sizes)
        if sizes not in self.known:
            self.known[sizes] = self.find(sizes)
        return self.known[sizes]

    def semaphores(self, before, sizes):
        """Those of the sum whose buffer was allocated just before, or None."""
        mine = "Q" + before[1:]
        if before.startswith(("R(", "RD(", "RG(", "RV(", "RI(")) and all(v.get(mine) == n for v, n in zip(self.shapes, sizes)):
            return 1, [(1, (mine,))]
        return None

    def find(self, sizes):
        for col, m in self.columns.items():
            c = Fraction(sizes[0], col[0])
            if c.denominator != 1 and m and m[0].startswith(("J(", "K(")):         # whole blocks of scales, of which none has a part
                continue
            if c.denominator <= 4 and (c == 1 or not is_scratch(m)) and all(c * x == s for x, s in zip(col, sizes)):
                return c.denominator, [(c.numerator, m)]
        # two terms, small coefficients: s - p x must be a multiple of a column
        for x, m in self.columns.items():
            if is_scratch(m):         # which is a tensor of its own
                continue
            for p in (1, 2, 4, 8, 12, 16, 24):
                rest = tuple(s - p * u for s, u in zip(sizes, x))
                if min(rest) <= 0:
                    break
                divisor = rest[0]
                for other in rest[1:]:
                    divisor = gcd(divisor, other)
                for q in (1, 2, 4, 8, 12, 16, 24, 512, 131072, divisor):         # 131072 are of KS
                    if divisor % q == 0:
                        n = self.columns.get(tuple(u // q for u in rest))
                        if n is not None and not is_scratch(n):
                            return 1, [(p, m), (q, n)]
        return None

#!/bin/bash
# tests/test_edit.sh: vplan emit --edit in files with lists, maps and switches of Liger's: what must go goes, whatever its shape, and the rest stays as
# it is written. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import json, os, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work, root = sys.argv[1:4]
os.chdir(work)


def call(*words):
    p = subprocess.run((vplan,) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def write(name, text):
    with open(name, "wb") as f:
        f.write((text if isinstance(text, str) else json.dumps(text)).encode())
    return name


def read(name):
    with open(name, "rb") as f:
        return f.read().decode()


COMMON = dict(micro_batch=4, accumulation=8, world=1, seq=2048, precision="bf16-amp", optimizer="adamw_torch_fused", recompute="none", attention="sdpa", parallel="none")


def edit(what, target, name, text, want, **change):
    """The file as it is wanted; then nothing is left to change, and check reads the loss that was asked for and no error."""
    write("s.json", {"common": dict(COMMON, **change)})
    code, out, err = call("emit", "s.json", "--for", target, "--edit", write(name, text), "--force")
    ok(code == 0 and read(name) == want, what, (code, err, read(name)))
    again = call("emit", "s.json", "--for", target, "--edit", name)
    ok(again[0] == 0 and "nothing is to be changed" in again[1], what + ": again", again)
    c = json.loads(call("check", "--json", "--for", target, name)[1])
    ok(c["common"].get("loss") == change["loss"] and not [f for f in c["findings"] if f["severity"] == "error"], what + ": read back", (c["common"], c["findings"]))


def refused(what, target, name, text, why, **change):
    write("s.json", {"common": dict(COMMON, **change)})
    code, out, err = call("emit", "s.json", "--for", target, "--edit", write(name, text), "--force")
    ok(code == 4 and why in err and read(name) == text, what, (code, err))


# ---- axolotl's plugins: one comes or goes, the user's others stay as they are written ----
L, C = "axolotl.integrations.liger.LigerPlugin", "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
HEAD = "base_model: gpt2\nmicro_batch_size: 4\ngradient_accumulation_steps: 8\nsequence_len: 2048\nbf16: true\n"
ON = "liger_fused_linear_cross_entropy: true\n"
for what, has, gone, come in (
        ("in one line", "plugins: [a.b.C, %s]  # both\n" % L, "plugins: [a.b.C]  # both\n", None),
        ("the first", "plugins: [%s, a.b.C]\n" % L, "plugins: [a.b.C]\n", None),
        ("quoted", "plugins: ['a.b.C', \"%s\", d.e.F]\n" % L, "plugins: ['a.b.C', d.e.F]\n", None),
        ("the only one", "plugins: [%s]\n" % L, "", None),
        ("another loss's plugin", "plugins: [a.b.C, %s]\n" % C, "plugins: [a.b.C]\n", "plugins: [a.b.C, %s]\n" % L),
        ("only another loss's plugin", "plugins:\n  - %s  # why\n" % C, "", "plugins:\n  - %s  # why\n" % L),
        ("over lines", "plugins: [\n  a.b.C,  # mine\n  # next\n  %s,\n]\n" % L, "plugins: [\n  a.b.C,  # mine\n  # next\n]\n", None),
        ("over lines, the first", "plugins: [\n  %s,\n  a.b.C ]\n" % L, "plugins: [\n  a.b.C ]\n", None),
        ("with commas first", "plugins: [\n  %s\n  , a.b.C\n]\n" % L, "plugins: [\n  a.b.C\n]\n", None),
        ("below its key", "plugins:\n  [a.b.C, %s]\n" % L, "plugins:\n  [a.b.C]\n", None),
        ("as a block", "plugins:\n  - a.b.C  # mine\n  # other\n  - %s  # theirs\n" % L, "plugins:\n  - a.b.C  # mine\n  # other\n", None),
        ("as a block without an indent", "plugins:\n- %s\n- a.b.C\n" % L, "plugins:\n- a.b.C\n", None),
        ("as a block of its own", "plugins:   # those\n  - %s\n# after\n" % L, "# after\n", None),
        ("by another way to its module", "plugins: [axolotl.integrations.liger.plugin.LigerPlugin, a.b.C]\n", "plugins: [a.b.C]\n", None),
        ("none of Liger's", "plugins: [a.b.C]\n", "plugins: [a.b.C]\n", "plugins: [a.b.C, %s]\n" % L),
        ("none of Liger's, in quotes", 'plugins: ["a.b.C"]\n', 'plugins: ["a.b.C"]\n', 'plugins: ["a.b.C", "%s"]\n' % L),
        ("none of Liger's, over lines", "plugins: [\n  a.b.C,  # mine\n]\n", "plugins: [\n  a.b.C,  # mine\n]\n", "plugins: [\n  a.b.C,\n  %s,  # mine\n]\n" % L),
        ("none of Liger's, as a block", "plugins:\n  - a.b.C  # mine\n", "plugins:\n  - a.b.C  # mine\n", "plugins:\n  - a.b.C  # mine\n  - %s\n" % L),
        ("empty", "plugins: []\n", "plugins: []\n", "plugins: [%s]\n" % L),
        ("nothing", "plugins:\n", "plugins:\n", "plugins: [%s]\n" % L)):
    for eol in "\n", "\r\n":
        lines = lambda text: text.replace("\n", eol)
        edit("plugins %s: off, %r" % (what, eol), "axolotl", "ax.yaml", lines(has + HEAD + ON), lines(gone + HEAD), loss="full")
        edit("plugins %s: on, %r" % (what, eol), "axolotl", "ax.yaml", lines(has + ON + HEAD), lines((come or has) + ON + HEAD), loss="liger")
# the last line without an end
edit("a block at the file's end", "axolotl", "ax.yaml", HEAD + ON + "plugins:\n  - a.b.C", HEAD + ON + "plugins:\n  - a.b.C\n  - %s" % L, loss="liger")
refused("a list that is another's", "axolotl", "ax.yaml", "x: &p [a.b.C, %s]\nplugins: *p\n" % L + HEAD + ON, "does not stand there itself", loss="full")
refused("a dash in another line", "axolotl", "ax.yaml", "plugins:\n  - a.b.C\n  -\n    %s\n" % L + HEAD + ON, "dash", loss="full")

# ---- what Liger is asked for goes with it; a neighbour that is edited as well, and a comment, stay ----
KEYS = "liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true\n# mine\nliger_layer_norm: true\n"
LIST = "plugins: [a.b.C, %s]\n" % L
TWO = HEAD.replace("size: 4", "size: 2")
for loss, new in (("full", ""), ("chunked", "chunked_cross_entropy: true\n")):
    edit("kernels go: " + loss, "axolotl", "ax.yaml", LIST + KEYS + ON + TWO, "plugins: [a.b.C]\n# mine\n" + HEAD + new, loss=loss)
    edit("a kernel and no loss goes: " + loss, "axolotl", "ax.yaml", LIST + "liger_rms_norm: true\n" + TWO, "plugins: [a.b.C]\n" + HEAD + new, loss=loss)
    edit("Liger's other loss goes: " + loss, "axolotl", "ax.yaml", TWO + LIST + "liger_cross_entropy: true\nliger_use_token_scaling: true\nliger_swiglu: true\n", HEAD + "plugins: [a.b.C]\n" + new, loss=loss)
    edit("another's loss goes: " + loss, "axolotl", "ax.yaml", TWO + LIST.replace(L, C) + "cut_cross_entropy: true\n", HEAD + "plugins: [a.b.C]\n" + new, loss=loss)
    edit("what is off stays: " + loss, "axolotl", "ax.yaml", "plugins: [a.b.C]\n" + KEYS.replace("true", "false") + HEAD, "plugins: [a.b.C]\n" + KEYS.replace("true", "false") + HEAD + new, loss=loss)
edit("all kernels, of which one has its old name", "axolotl", "ax.yaml", HEAD + LIST + "liger_swiglu: true\nliger_rope: true\nliger_rms_norm: true\n" + ON, HEAD + LIST + "liger_rope: true\nliger_rms_norm: true\n" + ON + "liger_glu_activation: true\n", loss="liger-all")
finish()
P

#!/usr/bin/env python3
"""tests/readme.py: what the documents show is what the program prints.

    BUILD=build tests/test_readme.sh             check; the last line counts
    BUILD=build tests/test_readme.sh --update    rewrite what differs, in place
    BUILD=build tests/test_readme.sh --peaks     train the table of peaks again (minutes, 3 GB) and rewrite it

Checked in each file of DOCUMENTS:

    ```console      a block that begins with `$ vplan`. Lines that begin with "$ " are commands, the lines below each are its
                    output, standard error included. Commands of one file run in one folder, from top to bottom. "# exit 3" behind
                    a command is the exit status it must have (0 if nothing is said). A line "..." stands for any lines.
    ```yaml NAME    a file that the commands below it find in their folder; ```text NAME likewise
    ```json         a piece of plan.json, the plan the file's commands left: it must stand in it, keys in any order. A member
                    "...": "..." stands for any other members, an element "..." for any other elements.
    docs/plan-file.md names every key of that plan
    links           of every README.md and of docs/ lead to files, or to headings of their own
    settings played what README.md says of them is counted in tests/emit/end_to_end.csv
    table of peaks  between <!-- peaks --> and <!-- end -->: predicted bytes are planned again, measured ones are not.

Byte counts are compared in full. Only what depends on the machine or the clock is not: MASKS, and in JSON CLOCK_KEYS. Plans for a
card of the device table depend on neither: of their output only the way of the proof is masked."""
import csv
import difflib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

DOCUMENTS = ["README.md", "docs/own-runtime.md", "planner/README.md", "docs/plan-file.md"]

ALWAYS_MASKED = [(r"gap [\d.e+-]+( %)?, checked by vplan \(\d+ nodes\)", "gap G, checked by vplan (N nodes)")]  # GLPK's rounding decides them
MASKS = [  # pattern, what stands for it; only in output that depends on this machine's CPU
    (r"\b\d+(\.\d+)? (us|ms|s)\b", "TIME"),
    (r"\b[\d,]+ tokens/s", "N tokens/s"),
    (r"(loss|grad norm) (\d+\.\d\d)\d*", r"\1 \2"),      # rounding beyond that is the instruction set's
    (r"[\d.]+ [KMG]iB peak RSS", "PEAK peak RSS"),
    (r"^(backend +cpu: ).*", r"\1..."),
    (r"\b[0-9a-f]{64}\b", "SHA256"),
]
CLOCK_KEYS = {"seconds", "step_time_s"}

BUILD = os.path.realpath(os.environ.get("BUILD", "build"))
VPLAN = os.path.join(BUILD, "vplan")
TOO_LARGE = re.compile(r"--budget .* is more than the .* usable on cpu")

# The table of peaks: what is shown for a model, plan's words, run's words.
PEAKS = [
    ("gpt2-tiny", "gpt2-tiny --seq 128 --global-batch 8 --budget 64MB --recompute none --micro-batch 8 --loss full", 20),
    ("gpt2-tiny, recomputed", "gpt2-tiny --seq 128 --global-batch 8 --budget 3MB --recompute mlp --micro-batch 1 --loss full", 20),
    ("GPT-2 124M in 70 %", "gpt2 --seq 256 --global-batch 8 --budget 2541MB --recompute none --micro-batch 2 --loss full", 2),
    ("GPT-2 124M, recomputed", "gpt2 --seq 256 --global-batch 8 --budget 3GB --recompute full --micro-batch 8 --loss chunked:256", 1),
    ("GPT-2 124M, 1,024 tokens", "gpt2 --seq 1024 --global-batch 1 --budget 3GB --recompute none --loss full", 1),
]


def run(words, folder):
    env = dict(os.environ, LC_ALL="C", OMP_NUM_THREADS="1")
    r = subprocess.run([VPLAN] + words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, timeout=600)
    return r.returncode, r.stdout.decode().rstrip("\n").split("\n")


def depends_on_machine(words):
    device = words[words.index("--device") + 1] if "--device" in words else ""
    return words[0] in ("run", "tune", "explain") or device == "cpu"


def masked(line, mask):
    for pattern, word in ALWAYS_MASKED + (MASKS if mask else []):
        line = re.sub(pattern, word, line)
    return re.sub(r"  +", " ", line) if mask else line


def segments(shown):
    parts = [[]]
    for line in shown:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def difference(shown, got, mask):
    """None, or the first line that is not as shown."""
    show = [masked(x, mask) for x in shown]
    have = [masked(x, mask) for x in got]
    parts, at = segments(show), 0
    for i, part in enumerate(parts):
        places = range(at, len(have) - len(part) + 1)
        if i == 0:
            places = [0]
        if i == len(parts) - 1 and i > 0:
            places = [max(at, len(have) - len(part))]
        for place in places:
            if have[place:place + len(part)] == part:
                at = place + len(part)
                break
        else:
            part_at = 0 if i == 0 else at
            for k, line in enumerate(part):
                if line not in have[part_at:]:
                    return "is not printed: " + line
                if i == 0 and have[k:k + 1] != [line]:
                    return "comes elsewhere: " + line
            return "not in this order: " + (part[0] if part else "end")
    if len(parts) == 1 and len(have) != len(show):
        return "%d lines are printed, %d shown; then: %s" % (len(have), len(show), have[len(show):][:1])
    return None


def refreshed(shown, got, mask):
    """What to show instead: the lines as printed, elided where they were; old lines that only differ in what is masked stay."""
    old, out, at, parts = {masked(x, mask): x for x in shown}, [], 0, segments(shown)
    for i, part in enumerate(parts):
        n = len(part)
        if len(parts) == 1:
            at, n = 0, len(got)
        elif i == len(parts) - 1:
            at = max(at, len(got) - n)
        elif i > 0 and n:
            want = "\n".join(part)
            at = max(range(at, max(at + 1, len(got) - n + 1)),
                     key=lambda k: difflib.SequenceMatcher(None, want, "\n".join(got[k:k + n]), False).ratio())
        out += (["..."] if i else []) + [old.get(masked(x, mask), x) for x in got[at:at + n]]
        at += n
    return out


class Commands:
    """A block of a document: (command line, words, exit status, shown lines)."""

    def __init__(self, lines):
        self.items = []
        for line in lines:
            if line.startswith("$ "):
                status = re.search(r"\s# exit (\d+)$", line)
                self.items.append([line, shlex.split(line[2:], comments=True), int(status.group(1)) if status else 0, []])
            else:
                self.items[-1][3].append(line)


def blocks(text):
    """(kind, first line, last line) of fenced blocks, without their fences; lines from 0."""
    kind = start = None
    for i, line in enumerate(text):
        if kind is None and line.startswith("```"):
            kind, start = line[3:].strip() or "text", i + 1
        elif kind is not None and line == "```":
            yield kind, start, i
            kind = None


def contains(have, want):
    """Whether the JSON value `want`, elisions allowed, is `have`."""
    if isinstance(want, dict):
        keys = [k for k in want if k != "..."]
        return (isinstance(have, dict) and all(k in have and (k in CLOCK_KEYS or contains(have[k], want[k])) for k in keys)
                and ("..." in want or set(keys) == set(have)))
    if isinstance(want, list):
        if not isinstance(have, list):
            return False
        at, elided = 0, False
        for w in want:
            if w == "...":
                elided = True
                continue
            while elided and at < len(have) and not contains(have[at], w):
                at += 1
            if at == len(have) or not contains(have[at], w):
                return False
            at, elided = at + 1, False
        return elided or at == len(have)
    return type(have) is type(want) and have == want


def somewhere(have, want):
    if contains(have, want):
        return True
    children = have.values() if isinstance(have, dict) else have if isinstance(have, list) else []
    return any(somewhere(x, want) for x in children)


def plan_keys(value, found):
    """Keys of a plan, but of what is the model's own, and but for the attributes of kernels."""
    if isinstance(value, list):
        for x in value:
            plan_keys(x, found)
    elif isinstance(value, dict):
        for key, x in value.items():
            if "kernel" in value and isinstance(x, (int, float)) and key not in ("seconds", "rng_id", "first_only"):
                continue
            found.add(key)
            if key != "config":
                plan_keys(x, found)
    return found


def plan_bytes(words, folder, path):
    code, out = run(["plan"] + shlex.split(words) + ["--device", "cpu", "-o", path, "--force"], folder)
    if code != 0:
        return None, "\n".join(out)
    with open(os.path.join(folder, path)) as f:
        return json.load(f)["prediction"], ""


def peaks_table():
    rows = ["| | `vplan plan --device cpu` with | arena predicted | arena executed | process predicted | process measured | off |",
            "|---|---|---:|---:|---:|---:|---:|"]
    with tempfile.TemporaryDirectory() as folder:
        for what, words, steps in PEAKS:
            predicted, said = plan_bytes(words, folder, "p.json")
            if not predicted:
                sys.exit(said)
            r = subprocess.run([VPLAN, "run", "p.json", "--steps", str(steps), "--json"], cwd=folder, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"), check=True)
            done = json.loads(r.stdout.decode())
            memory, process = done["memories"][0], done["process_peak_bytes"]
            off = (process - predicted["process_predicted_bytes"]) / 2.0**20
            rows.append("| %s | `%s` | %s | %s | %s | %s | %+.1f MiB |" % (
                what, words, *("{:,}".format(n) for n in (memory["predicted_bytes"], memory["executed_bytes"],
                                                          predicted["process_predicted_bytes"], process)), off))
            print(rows[-1], flush=True)
    return rows


def check_peaks(rows, folder, tell):
    for row in rows:
        cells = [c.strip() for c in row.strip("|").split("|")]
        words = cells[1].strip("`")
        numbers = [int(c.replace(",", "")) for c in cells[2:6]]
        predicted, said = plan_bytes(words, folder, "peaks.json")
        if not predicted:
            tell("skip" if TOO_LARGE.search(said) else "fail", "peaks: " + words, said)
            continue
        tell(numbers[0] == predicted["peak_bytes"] and numbers[1] == numbers[0]
             and numbers[2] == predicted["process_predicted_bytes"], "peaks: " + words,
             "shown %s, predicted now %s" % (numbers, predicted))


def self_test(tell):
    """A changed byte is found, a changed time is not held against anybody."""
    got = ["memory     6.7 MiB arena", "time       11.9 ms a step, 86336 tokens/s", "12,042,304 B", "end"]
    for name, shown, mask, same in [
            ("as printed", got, False, True), ("a byte", got[:2] + ["12,042,305 B", "end"], True, False),
            ("a size", ["memory     6.8 MiB arena"] + got[1:], True, False), ("a time here", [got[0], "time 9 ms a step, 1 tokens/s"] + got[2:], True, True),
            ("a time of a card", [got[0], "time       9 ms a step, 86336 tokens/s"] + got[2:], False, False), ("a line less", got[:3], True, False),
            ("a line more", got + ["x"], True, False), ("elided", [got[0], "...", "end"], False, True), ("elided wrongly", ["...", got[0]], False, False),
            ("elided, a byte", [got[0], "...", "12,042,305 B", "..."], True, False)]:
        tell((difference(shown, got, mask) is None) == same, "self-test: " + name, difference(shown, got, mask))
    plan = {"a": [{"b": 1, "seconds": 0.5}, {"b": 2}], "c": {"d": "x"}}
    for want, there in [({"b": 1, "seconds": 9}, True), ({"b": 3}, False), ({"a": ["...", {"b": 2}], "...": "..."}, True), ({"a": [{"b": 2}], "...": "..."}, False)]:
        tell(somewhere(plan, want) == there, "self-test: " + json.dumps(want), "wrong")


def check_links(tell):
    for folder, folders, files in os.walk("."):
        folders[:] = [x for x in folders if not x.startswith(".") and x != "build"]
        for name in files:
            if name != "README.md" and not (folder == "./docs" and name.endswith(".md")):
                continue
            path = os.path.join(folder, name)[2:]
            with open(path) as f:
                text = f.read()
            links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
            gone = [x for x in links if not os.path.exists(os.path.join(folder, x))]
            tell(not gone, path + ": links", " ".join(gone))
            slugs = {re.sub(r"[^a-z0-9 _-]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)}
            nowhere = set(re.findall(r"\]\(#([^)]+)\)", text)) - slugs
            tell(not nowhere, path + ": links to headings", " ".join(nowhere))


def check_played(tell):
    """What README.md says of settings that were planned, written and played is what their table says."""
    with open("tests/emit/end_to_end.csv") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    inside = sum(r["in_interval"] == r["in_card"] == "1" for r in rows)
    near = sum(abs(float(r["miss"])) <= 0.02 for r in rows)
    larger = [r for r in rows if r["next_verdict"] != "none larger"]
    large, tight, unlisted = ([r for r in larger if r["next_said"] == word] for word in ("too large", "tight", "not said"))
    said = ("%d settings of %d models on %d GPUs that were planned and written so were then dry-run with the real libraries: "
            "PyTorch's own peak was within the interval and the GPU's memory in %s, within 2 %% in %d. Of the %d that had a next larger micro-batch it ended "
            "out of memory in all %d that were called too large and in %d that were not listed, and ran in %d of the %d that were called tight" % (len(rows), len({r["model"] for r in rows}), len({r["card"] for r in rows}), "all" if inside == len(rows) else inside,
                                           near, len(larger), sum(r["next_verdict"] == "oom" for r in large),
                                                                     sum(r["next_verdict"] == "oom" for r in unlisted),
                                                                     sum(r["next_verdict"] == "fits" for r in tight), len(tight)))
    tell(all(r["next_verdict"] == "oom" for r in large), "README.md: too large is out of memory", large)
    tell(len(large) + len(tight) + len(unlisted) == len(larger), "README.md: no row is left out", len(larger))
    with open("README.md") as f:
        tell(said in " ".join(f.read().split()), "README.md: settings that were played", said)


def check_models(tell):
    """As many built-in models as README.md says, the last of them without a graph."""
    graphs = [m["has_graph"] for m in json.loads("\n".join(run(["models", "--json"], ".")[1]))["models"]]
    said = "%d names need no file, the last %d (" % (len(graphs), graphs.count(False))
    with open("README.md") as f:
        tell(said in " ".join(f.read().split()) and graphs == sorted(graphs, reverse=True), "README.md: built-in models", said)


def check_document(path, update, tell):
    with open(path) as f:
        text = f.read().split("\n")
    new, shift = list(text), 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, first, last in list(blocks(text)):
            if kind == "console" and first < last and text[first].startswith("$ vplan"):
                block, out = Commands(text[first:last]), []
                for line, words, status, shown in block.items:
                    name = "%s:%d: %s" % (path, first + 1, line)
                    if words[0] != "vplan":
                        tell(False, name, "not a vplan command")
                        out += [line] + shown
                        continue
                    mask = depends_on_machine(words[1:])
                    code, got = run(words[1:], folder)
                    got = [] if got == [""] else got
                    wrong = difference(shown, got, mask) if code == status else "exit %d, shown %d: %s" % (code, status, got[:2])
                    if wrong and status == 0 and code == 2 and any(TOO_LARGE.search(x) for x in got):
                        tell("skip", name, got[0])
                    elif update and code == status:
                        tell(True, name, "")
                        shown = refreshed(shown, got, mask) if wrong else shown
                    else:
                        tell(wrong is None, name, wrong)
                    out += [line] + shown
                new[first + shift:last + shift] = out
                shift += len(out) - (last - first)
            elif kind.startswith(("yaml ", "text ")):
                with open(os.path.join(folder, kind.split()[1]), "w") as f:
                    f.write("\n".join(text[first:last]) + "\n")
            elif kind == "json" and os.path.exists(folder + "/plan.json"):
                with open(folder + "/plan.json") as f:
                    plan = json.load(f)
                try:
                    good, why = somewhere(plan, json.loads("\n".join(text[first:last]))), "not in the plan the commands above made"
                except ValueError as e:
                    good, why = False, e
                tell(good, "%s:%d: json" % (path, first + 1), why)
        if path == "docs/plan-file.md":
            with open(folder + "/plan.json") as f:
                known = set(re.findall(r'[`"]([a-z_0-9]+)["`]', "\n".join(text)))
                missing = plan_keys(json.load(f), set()) - known
            tell(not missing, path + ": every key of a plan", "says nothing of " + " ".join(sorted(missing)))
        if "<!-- peaks -->" in text:
            begin, end = text.index("<!-- peaks -->"), text.index("<!-- end -->")
            check_peaks(text[begin + 3:end], folder, tell)
    if update and new != text:
        with open(path, "w") as f:
            f.write("\n".join(new))
        print("updated " + path)


def main(words):
    counts = {"pass": 0, "fail": 0, "skip": 0}

    def tell(good, name, why):
        result = good if good == "skip" else "pass" if good else "fail"
        counts[result] += 1
        if result != "pass":
            print("%s: %s: %s" % ("SKIP" if result == "skip" else "FAIL", name, why))

    if words == ["--peaks"]:
        rows = peaks_table()
        with open("README.md") as f:
            text = f.read().split("\n")
        text[text.index("<!-- peaks -->") + 1:text.index("<!-- end -->")] = rows
        with open("README.md", "w") as f:
            f.write("\n".join(text))
        return 0
    if words not in ([], ["--update"]):
        sys.exit("usage: tests/test_readme.sh [--update | --peaks]")
    self_test(tell)
    check_links(tell)
    check_played(tell)
    check_models(tell)
    for path in DOCUMENTS:
        check_document(path, words == ["--update"], tell)
    print("%d passed, %d failed, %d skipped" % (counts["pass"], counts["fail"], counts["skip"]))
    return counts["fail"] > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/bin/bash
# tests/test_bad_input.sh: what vplan says to bad files and bad command lines. The cases stand in tests/bad_input/cases.tsv;
# what a table cannot say (closed streams, strange names, files that change while they are read) stands below. The last
# line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
vplan=$(realpath "${BUILD:-build}/vplan")
mkdir "$work/files"
python3 tests/bad_input/make.py "$work/files" "$vplan" || { echo "FAIL: make.py"; echo "0 passed, 1 failed"; exit 1; }
python3 - "$vplan" "$work/files" "$PWD" "${VPLAN_LONG:+5000}" <<'P'
import copy, ctypes, glob, json, os, random, re, shlex, subprocess, sys, threading

sys.path.insert(0, "tests")
from check import finish, ok

vplan, files, root = sys.argv[1:4]
n_random = int(sys.argv[4] or 300)
os.chdir(files)
os.environ["HF_HUB_CACHE"] = "hub"  # make.py's, never the user's own
CODES = {1: "internal", 2: "usage", 3: "no-fit", 4: "input", 5: "device", 6: "no-trial", 7: "storage", 8: "limit"}

class Result:
    pass


def run(words, **more):
    r = Result()
    try:
        p = subprocess.run([vplan] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=more.pop("stdin", subprocess.DEVNULL), timeout=60, **more)
        r.code, r.out, r.err = p.returncode, p.stdout, p.stderr
    except subprocess.TimeoutExpired:
        r.code, r.out, r.err = 124, b"", b"hangs"
    return r


def snapshot():
    """Every file with its size and time, to see what a command left or changed."""
    seen, todo = {}, ["."]
    while todo:
        for e in os.scandir(todo.pop()):
            s = e.stat(follow_symlinks=False)
            seen[e.path] = (s.st_size, s.st_mtime_ns, s.st_ino)
            if e.is_dir(follow_symlinks=False):
                todo.append(e.path)
                seen[e.path] = None
    return seen


def controls(data):
    """Bytes a terminal would act on: C0 but line feed and tab, DEL, C1 and bidi controls in UTF-8."""
    text = data.decode("utf-8", "replace")
    return [c for c in text if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" or c in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"]


def problems(code, want, r, r_json, before):
    """Everything wrong with the two runs of a case."""
    file, line, field, text = want
    if r.code != code or r_json.code != code:
        return "exit %d, with --json %d, not %d: %s" % (r.code, r_json.code, code, r.err[-300:])
    if controls(r.out + r.err) or controls(r_json.err):
        return "control characters: %r" % controls(r.out + r.err)
    try:
        doc = json.loads(r_json.out)
    except ValueError as e:
        return "--json: %s in %r" % (e, r_json.out[:200])
    if doc.get("schema_version") != 1:
        return "--json: no schema_version"
    if code in (0, 3) and not (code == 3 and "error" in doc):  # what does not fit is an answer, or where nothing can be asked an error
        if "error" in doc:
            return "exit %d with an error object" % code
        if text != "-" and " ".join(text.split()) not in " ".join((r.out + r.err).decode().split()):  # screens break long lines
            return "no '%s' in %s" % (text, (r.out + r.err).decode())
    else:
        e = doc.get("error", {})
        if any(not line.startswith((b"FITS: ", b"recipe ", b"step ")) for line in r.out.splitlines()):  # run says what it will do and prints its steps as they come
            return "an error, and on stdout %r" % r.out[:200]
        if sorted(e) != ["code", "field", "file", "line", "message"] or e["code"] != CODES[code]:
            return "the error object is %s" % doc
        if text not in e["message"]:
            return "no '%s' in the message '%s'" % (text, e["message"])
        said = r.err.decode()
        if text not in said:
            return "no '%s' on stderr: %s" % (text, said)
        if (e["file"] or "-") != file:
            return "file %s, not %s" % (e["file"], file)
        if (line == "+") != (bool(e["line"]) and line == "+") or (line != "+" and str(e["line"] or "-") != line):
            return "line %s, not %s" % (e["line"], line)
        if (field == "+" and not e["field"]) or (field != "+" and (e["field"] or "-") != field):
            return "field %s, not %s" % (e["field"], field)
        place = file if file != "-" else ""
        if e["line"]:
            place += ":%d" % e["line"]
        if place not in said or (e["field"] and e["field"] not in said):
            return "stderr does not say %s and %s: %s" % (place, e["field"], said)
    after = snapshot()
    if after != before:
        return "files left or changed: %s" % sorted(set(k for k in set(after) | set(before) if after.get(k) != before.get(k)))
    return None


before = snapshot()
ids, commands = set(), set()
for row in open(root + "/tests/bad_input/cases.tsv", encoding="utf-8"):
    if row.startswith("#"):
        continue
    fields = row.rstrip("\n").split("\t")
    if len(fields) != 7 or fields[0] in ids or fields[6] in commands:
        ok(False, "cases.tsv", "not seven fields, or an id or command twice: %r" % row)
        continue
    name, code, want, command = fields[0], int(fields[1]), fields[2:6], fields[6]
    ids.add(name)
    commands.add(command)
    words = shlex.split(command)
    wrong = problems(code, want, run(words), run(words[:1] + ["--json"] + words[1:]), before)
    ok(wrong is None, "%s (vplan %s)" % (name, command), wrong)
    before = snapshot() if wrong else before
used = " ".join(commands)
unused = [f for f in glob.glob("*/*") if f not in used and not f.startswith(("out/", "data/", "hub/")) and os.path.basename(f) not in
          ("good", "good.json", "sgd.json", "u16.json", "i32.json", "vocabulary-200.json", "vocabulary-300.json", "socket")]
ok(not unused, "files that no case uses", unused)

# ---- every other family, and every class that vplan cannot train, is refused by its name ----
HAVE = set(re.findall(r"^    X\((\w+)\)", open(root + "/models/family.h").read(), re.M))
HEADS = ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
others = 0
for path in sorted(glob.glob(root + "/bench/survey/data/configs/*.json")):
    config = json.load(open(path))
    family, head = config["model_type"], config.get("architectures", ["ForCausalLM"])[0]
    if family in HAVE and head.endswith(HEADS):
        continue
    others += 1
    r = run(["estimate", path, "--json"])
    e = json.loads(r.out or b"{}").get("error", {})
    field, word = ("architectures[0]", head) if family in HAVE else ("model_type", family)
    ok(r.code == 4 and e.get("field") == field and '"%s"' % word in e.get("message", ""), "family of " + path, e)
ok(others >= 3, "other families", "only %d configs found" % others)

# ---- streams ----
for words in ["estimate", "config/good.json"], ["estimate", "config/good.json", "--json"], ["explain", "plan/good.json", "--buffers"], \
        ["explain", "plan/good.json", "--program", "--json"], ["models", "--json"], ["devices"]:
    with open("/dev/full", "wb") as full:
        p = subprocess.run([vplan] + words, stdout=full, stderr=subprocess.PIPE)
    ok(p.returncode == 7 and b"standard output cannot be written" in p.stderr, "stdout is full: %s" % words, (p.returncode, p.stderr))
    p = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", vplan] + words, stderr=subprocess.PIPE)
    ok(p.returncode == 7 and b"standard output cannot be written" in p.stderr, "stdout is closed: %s" % words, (p.returncode, p.stderr))
    ok(snapshot() == before, "files after a closed stdout: %s" % words, "changed")
words = ["plan", "config/good.json", "--seq", "32", "--global-batch", "4", "--budget", "1GB", "-o"]
ok(run(words + ["out/a.json"]).code == 0, "plan -o", "failed")
p = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", vplan] + words + ["out/b.json"], stderr=subprocess.PIPE)
ok(p.returncode == 7, "plan -o with a closed stdout", p.returncode)
ok(not os.path.exists("out/b.json") or open("out/b.json").read() == open("out/a.json").read(), "the plan file written with a closed stdout", "holds something else")
for f in "out/a.json", "out/b.json":
    if os.path.exists(f):
        os.remove(f)
r = run(["estimate", "-", "--json"], stdin=open("config/good.json"))
ok(r.code == 0 and json.loads(r.out)["model"]["params_total"] == 29440, "a config on stdin", (r.code, r.err))
for f, text in ("config/empty.json", "is empty"), ("config/cut-in-string.json", "ends inside a string"):
    r = run(["estimate", "-", "--json"], stdin=open(f))
    ok(r.code == 4 and text in json.loads(r.out)["error"]["message"], "%s on stdin" % f, (r.code, r.out))

# ---- names ----
strange = [b"no\xff\xfeutf8.json", b"esc\x1b[31mred.json", b"new\nline.json", "bidi\u202ename.json".encode(), b"quote\"and,comma.json", b" space .json", b"x" * 250]
for name in strange:
    with open(name, "wb") as f:
        f.write(open("config/good.json", "rb").read())
    for words in [b"estimate", b"--", name], [b"plan", b"--seq", b"32", b"--global-batch", b"4", b"--", name]:
        r, j = run(words), run(words[:1] + [b"--json"] + words[1:])
        good = r.code == j.code == 0 and not controls(r.out + r.err)
        try:
            json.loads(j.out)
        except ValueError:
            good = False
        ok(good, "the name %r with %r" % (name, words[0]), (r.code, j.code, r.out[:200], r.err, j.out[:200]))
    os.remove(name)
    for words in [b"estimate", name], [b"explain", name], [b"tune", name, b"--seq", b"8", b"--global-batch", b"1"], [b"estimate", b"gpt2", b"--device", name]:
        r, j = run(words), run(words[:1] + [b"--json"] + words[1:])
        good = r.code == j.code == (2 if b"--device" in words else 4) and not controls(r.out + r.err)
        try:
            good = good and "message" in json.loads(j.out)["error"]
        except ValueError:
            good = False
        ok(good, "no file of the name %r with %r" % (name, words[0]), (r.code, j.code, r.err, j.out[:300]))

# ---- a built-in name that is also a file here ----
os.mkdir("here")
os.mkdir("here/gpt2-tiny")
with open("here/gpt2-tiny/config.json", "wb") as f, open("here/Llama-Tiny", "wb") as g:
    f.write(open("config/good.json", "rb").read())
    g.write(open("config/good.json", "rb").read())
for name, params, note in ("gpt2-tiny", 124672, b"note: gpt2-tiny is the built-in model; the folder of this name is ./gpt2-tiny\n"), ("./gpt2-tiny", 29440, b""), \
        ("Llama-Tiny", 29440, b""), ("gpt2-xl", 1557611200, b""):
    r = run(["estimate", name, "--json"], cwd="here")
    ok(r.code == 0 and json.loads(r.out)["model"]["params_total"] == params and r.err == note, "%s beside files of such names" % name, (r.code, r.out[:200], r.err))
    ok(run(["estimate", name, "--json", "-q"], cwd="here").err == b"", "-q: " + name, "a note")
for f in "here/gpt2-tiny/config.json", "here/Llama-Tiny":
    os.remove(f)
os.rmdir("here/gpt2-tiny")
os.rmdir("here")

# ---- argument vectors ----
r = run(["estimate", "gpt2-tiny"] + ["x" * 1000] * 2000)
ok(r.code == 2 and b"one argument too many" in r.err and len(r.err) < 2000, "2 MiB of arguments", (r.code, r.err[:200]))
r = run(["estimate", "gpt2-tiny", "--budget", "9" * 120000])
ok(r.code == 2 and b"is too large" in r.err and len(r.err) < 2000, "a size of 120,000 digits", (r.code, r.err[:200]))
r = run(["x" * 120000])
ok(r.code == 2 and len(r.err) < 2000, "a command of 120,000 characters", (r.code, r.err[:200]))
r = run([])
ok(r.code == 2 and b"usage: vplan COMMAND" in r.err and not r.out, "no command", (r.code, r.err))
pid = os.fork()
if pid == 0:
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    ctypes.CDLL(None).execve(vplan.encode(), (ctypes.c_char_p * 1)(None), (ctypes.c_char_p * 1)(None))
    os._exit(99)
status = os.waitpid(pid, 0)[1]
ok(os.WIFEXITED(status) and os.WEXITSTATUS(status) == 2, "an empty argument vector", status)

# ---- files that change while they are read ----
text = open("config/good.json").read()
stop = threading.Event()


def rewrite(path, texts):
    while not stop.is_set():
        for t in texts:
            with open(path, "w") as f:
                f.write(t)


for what, texts in ("grows", [text, text + " " * 100000]), ("shrinks", [text + " " * 100000, text[:50]]), ("is replaced by a plan", [text, open("plan/good.json").read()]):
    stop.clear()
    with open("changing.json", "w") as f:
        f.write(text)
    writer = threading.Thread(target=rewrite, args=("changing.json", texts))
    writer.start()
    codes = [run(["estimate", "changing.json"]).code for _ in range(25)]
    stop.set()
    writer.join()
    ok(set(codes) <= {0, 4}, "a config that %s while it is read" % what, codes)
# ---- random damage: an answer or a located error, never a crash, and what passes the checker runs ----
SEED = 7
HOSTILE = [0, -1, 1, 2, 3, 63, 64, 4096, 2 ** 31, 2 ** 32, 2 ** 53, 2 ** 62, 2 ** 63 - 1, 1e308, 0.5, -0.0, "", "b0", "b3+4", "p0", "f0", "P0", "G0", "-",
           "device", True, None, [], {}, [[]], {"a": {}}]
plan = json.load(open("plan/good.json"))
config = json.load(open("config/good.json"))


def leaves(value, path=()):
    if isinstance(value, (dict, list)):
        yield path
        for k in (value if isinstance(value, dict) else range(len(value))):
            yield from leaves(value[k], path + (k,))
    else:
        yield path


def damage(draw, value):
    """One to three places replaced, removed, doubled or exchanged."""
    value = copy.deepcopy(value)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        places = [p for p in leaves(value) if p and p[0] != "config" and p[:2] != ("model", "config")]
        if not places:
            break
        path = draw.choice(places)
        at = value
        for k in path[:-1]:
            at = at[k]
        old, how = at[path[-1]], draw.random()
        if how < 0.1:
            del at[path[-1]]
        elif how < 0.2 and isinstance(at, list):
            at.insert(path[-1], copy.deepcopy(old))
        elif how < 0.6 and isinstance(old, int) and not isinstance(old, bool):
            at[path[-1]] = old + draw.choice([-64, -4, -1, 1, 4, 64, 256, old])
        elif how < 0.75:
            other = value
            for k in draw.choice(places):
                try:
                    other = other[k]
                except (LookupError, TypeError):
                    break
            at[path[-1]] = copy.deepcopy(other) if other is not value else 1
        else:
            at[path[-1]] = draw.choice(HOSTILE)
    return value


def located(r, file):
    try:
        e = json.loads(r.out)["error"]
        return e["file"] == file and e["message"] and (e["line"] or e["field"])
    except (ValueError, KeyError):
        return False


accepted = 0
for seed in range(n_random):
    draw = random.Random(SEED * 1000003 + seed)
    kind = seed % 3
    if kind == 0:
        with open("damaged.json", "w") as f:
            json.dump(damage(draw, plan), f, indent=1)
        command = ["explain", "damaged.json", "--json"]
    elif kind == 1:
        data = bytearray(open("plan/good.json" if seed % 2 else "config/good.json", "rb").read())
        for _ in range(draw.choice([1, 1, 2, 20])):
            data[draw.randrange(len(data))] = draw.choice([0, 9, 10, 32, 34, 44, 45, 46, 48, 57, 58, 91, 92, 93, 101, 123, 125, 127, 128, 255])
        with open("damaged.json", "wb") as f:
            f.write(data)
        command = ["explain" if seed % 2 else "estimate", "damaged.json", "--json"]
    else:
        with open("damaged.json", "w") as f:
            json.dump(damage(draw, config), f, indent=1)
        command = ["estimate", "damaged.json", "--json"]
    r = run(command)
    good = r.code == 0 or (r.code == 4 and located(r, "damaged.json"))
    said = (r.code, r.out[:300], r.err)
    if good and r.code == 0 and command[0] == "explain":
        accepted += 1
        t = run(["run", "damaged.json", "--steps", "1", "--verify", "--json"])
        good = t.code in (0, 4, 5)
        said = ("run", t.code, t.err)
    ok(good, "random damage %d of seed %d, %s" % (seed, SEED, command[0]), "%s; the file: %s" % (said, open("damaged.json", "rb").read() if not good and kind else "of plan/good.json"))
ok(accepted > 0, "some damage is harmless", "no damaged plan was accepted and run")
finish()
P

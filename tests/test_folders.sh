#!/bin/bash
# tests/test_folders.sh: the tree keeps its directions: who includes whom, who links what, a README in every folder, file names
# once, no circle between files but those a README names, no file over 900 lines and no function over 100, nothing of one machine and no
# binaries in the repository. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
git rev-parse --is-inside-work-tree > /dev/null 2>&1 || { echo "SKIP: not a git checkout, so the tracked files are not known"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
python3 - "${BUILD:-build}" <<'P'
import fnmatch, os, re, subprocess, sys, tempfile

sys.path.insert(0, "tests")
from check import finish, ok

build = sys.argv[1]

MAY = {  # top folder: where its "..." includes may come from. cli/, tests/ and bench/: from everywhere.
    "base": {"base"}, "plan": {"base", "plan"}, "models": {"base", "plan", "models"}, "devices": {"base", "plan", "devices"},
    "planner": {"base", "plan", "models", "devices", "planner"},
    "trainers": {"base", "plan", "models", "devices", "planner/lowering", "trainers"},
    "report": {"base", "plan", "devices", "report"}, "doctor": {"base", "plan", "devices", "trainers", "doctor"}, "dryrun": {"base", "plan", "devices", "dryrun"}, "kernels": {"base", "plan", "kernels"}, "runtime": {"base", "plan", "kernels", "runtime"}, "tuner": {"base", "plan", "models", "devices", "planner", "trainers", "tuner"},
}
EVERYWHERE = {"cli", "tests", "bench"}
# dryrun/stand_in stands in for the CUDA libraries: its own programs, no part of vplan's libraries.
tracked = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout.decode().rstrip("\0").split("\0")
tracked = [f for f in tracked if os.path.lexists(f)]
sources = [f for f in tracked if f.endswith((".c", ".h", ".cu"))]
ok(len(sources) > 50, "the sources", "only %d found" % len(sources))


def wrong_includes(path, text):
    """The include lines of a file that look the wrong way."""
    top, out = path.split("/")[0], []
    for n, line in enumerate(text.split("\n"), 1):
        m = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not m:
            continue
        if "/" not in m.group(1) and top != "tests" and not path.startswith("dryrun/stand_in/"):
            out.append("%s:%d: includes \"%s\": paths start at the root" % (path, n, m.group(1)))
        elif top in MAY and "/" in m.group(1) and not any(m.group(1).startswith(folder + "/") for folder in MAY[top]):
            out.append("%s:%d: %s/ may not include %s" % (path, n, top, m.group(1)))
        elif top not in MAY and top not in EVERYWHERE:
            out.append("%s: nobody says what %s/ may include" % (path, top))
    return out


for f in sources:
    wrong = wrong_includes(f, open(f, encoding="utf-8", errors="replace").read())
    ok(not wrong, "includes", "\n".join(wrong))
# the rule itself finds what it is for
for path, line in ("base/x.c", "plan/op.h"), ("plan/x.c", "models/graph.h"), ("planner/x.c", "runtime/runtime.h"), ("runtime/x.c", "planner/planner.h"), ("kernels/cpu/x.c", "runtime/data.h"), \
        ("models/x.c", "planner/lowering/pack.h"), ("models/x.c", "devices/devices.h"), ("tuner/x.c", "runtime/runtime.h"), ("trainers/torch/x.c", "planner/planner.h"), ("dryrun/x.c", "models/model.h"), ("doctor/x.c", "planner/planner.h"), ("base/x.c", "json.h"), ("extra/x.c", "base/err.h"):
    ok(wrong_includes(path, '#include "%s"\n' % line), "the include rule", "does not see that %s includes %s" % (path, line))
for path, line in ("base/x.c", "base/err.h"), ("plan/x.c", "base/err.h"), ("tuner/x.c", "planner/planner.h"), ("trainers/torch/x.c", "planner/lowering/lower.h"), ("cli/x.c", "runtime/runtime.h"), ("runtime/x.c", "kernels/backend.h"):
    ok(not wrong_includes(path, '#include "%s"\n' % line), "the include rule", "forbids %s to include %s" % (path, line))

# ---- the planner knows no front end: no option is spelled in its texts or comments ----
TEXTS = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*', re.S)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def spelled_options(text):
    """Options in strings and comments; `--n` in code is none."""
    return [o for t in TEXTS.findall(text) for o in OPTION.findall(t)]


OWN = {"--monolithic", "--help"}  # of vplan-solve, which is the planner's own program: prove.c runs it
for f in [f for f in sources if f.startswith("planner/")]:
    found = set(spelled_options(open(f, encoding="utf-8").read())) - (OWN if f.startswith("planner/solve/") else set())
    ok(not found, "options", "%s spells %s: how a setting is asked for is the front end's (cli/words.c)" % (f, ", ".join(sorted(found))))
ok(spelled_options('f("leave --seq alone", --n); /* --loss */ // --budget\n') == ["--seq", "--loss", "--budget"], "the option rule", "does not see what it is for")

# ---- a README in every folder of sources ----
FIXTURES = re.compile(r"^(tests|bench)/.+")  # inputs and expected outputs below tests/ and bench/ need none
for folder in sorted({os.path.dirname(f) for f in sources + [f for f in tracked if f.endswith((".py", ".sh"))]} - {""}):
    if not FIXTURES.match(folder):
        ok(folder + "/README.md" in tracked, "README", "%s/ has none" % folder)
ok("README.md" in tracked, "README", "the root has none")

# ---- file names ----
names = {}
for f in sources:
    names.setdefault(os.path.basename(f), []).append(f)
for name, paths in sorted(names.items()):
    paths = [p for p in paths if not (name == "main.c")]  # every program has one
    ok(len(paths) <= 1, "file names", "%s: %s" % (name, ", ".join(paths)))

# ---- no circle between files: who calls whom, from the symbols of the objects. A README names one with its reason under "## Circles", as
#      * `a.c`, `b_*.c`: why ----
def symbols_of(objects):
    """{object: (what it defines for others, what it needs of others)}"""
    out = {}
    for o in objects:
        rows = [line.split() for line in subprocess.run(["nm", "-P", "-g", o], stdout=subprocess.PIPE, check=True).stdout.decode().split("\n") if line]
        out[o] = ({r[0] for r in rows if r[1] not in "Uw"}, {r[0] for r in rows if r[1] in "Uw"})
    return out


def circles(symbols):
    """The sets of objects each of which reaches every other; programs' main() is nobody's."""
    home = {}
    for o, (defines, _) in symbols.items():
        for name in defines - {"main"}:
            home.setdefault(name, o)
    to = {o: {home[n] for n in needs if n in home and home[n] != o} for o, (_, needs) in symbols.items()}

    def reach(o):
        seen, todo = set(), [o]
        while todo:
            for n in to[todo.pop()] - seen:
                seen.add(n)
                todo.append(n)
        return seen

    far = {o: reach(o) for o in to}
    return {frozenset(n for n in far[o] if o in far[n]) for o in far if o in far[o]}


def allowed_circles(readme):
    """The lists of file patterns under "## Circles", those with a reason."""
    part = re.search(r"^## Circles\n(.*?)(?=^## |\Z)", readme, re.S | re.M)
    lines = re.findall(r"^\* ((?:`[^`]+`(?:, )?)+): (\S.+)$", part.group(1), re.M) if part else []
    return [re.findall(r"`([^`]+)`", files) for files, _ in lines]


def is_allowed(circle, lists):
    return any(all(any(fnmatch.fnmatch(os.path.basename(f), pattern) for pattern in patterns) for f in circle) for patterns in lists)


def own(f):
    return f.endswith(".c") and not re.match(r"tests/|bench/|dryrun/stand_in/|kernels/cuda/", f)


objects = {"%s/%s.o" % (build, f[:-2]): f for f in sources if own(f)}
missing = [o for o in objects if not os.path.exists(o)]
ok(not missing, "circles", "not built: %s" % " ".join(missing[:5]))
symbols = symbols_of([o for o in objects if o not in missing])
ok(sum(len(defines) for defines, _ in symbols.values()) > 500, "circles", "nm names too few symbols")
for circle in sorted(map(sorted, circles(symbols))):
    files = [objects[o] for o in circle]
    folders = {os.path.dirname(f) for f in files}
    lists = allowed_circles(open(folders.copy().pop() + "/README.md").read()) if len(folders) == 1 else []
    ok(is_allowed(files, lists), "circles", "%s call each other, and no README says why" % " ".join(files))
# the rule itself finds what it is for
with tempfile.TemporaryDirectory() as work:
    for name, text in ("a", "int a(void); int b(void); int a(void) { return b(); }"), ("b", "int b(void); int c(void); int b(void) { return c(); }"), \
            ("c", "int a(void); int c(void); int c(void) { return a(); }"), ("d", "int a(void); int main(void) { return a(); }"):
        with open("%s/%s.c" % (work, name), "w") as f:
            f.write(text)
        subprocess.run(os.environ.get("CC", "gcc").split() + ["-c", "%s/%s.c" % (work, name), "-o", "%s/%s.o" % (work, name)], check=True)
    of = {n: "%s/%s.o" % (work, n) for n in "abcd"}
    ok(circles(symbols_of(of.values())) == {frozenset(of[n] for n in "abc")}, "the circle rule", "does not see a, b and c call each other")
    ok(circles(symbols_of([of[n] for n in "abd"])) == set(), "the circle rule", "sees one where there is none")
named = "# x/\n\n## Circles\n\n* `main.c`, `cmd_*.c`: because\n* `x.c`, `y.c`:\n\n## Words\n\n* `p.c`, `q.c`: no circle\n"
ok(is_allowed(["x/main.c", "x/cmd_a.c"], allowed_circles(named)), "the circle rule", "refuses a circle that is named with its reason")
ok(not any(is_allowed(c, allowed_circles(named)) for c in (["x/main.c", "x/z.c"], ["x/x.c", "x/y.c"], ["x/p.c", "x/q.c"])), "the circle rule", "allows what is not named, or without a reason")

# ---- no file over 900 lines but tables, no function over 100 ----
MAX_FILE, MAX_FUNCTION = 900, 100
LARGE = {  # file: why
    "dryrun/stand_in/null_runtime.c": "vp_null_attribute() is a table: what the device answers to each question",
}


def functions(text):
    """(its first line's number, how many lines stand between its braces) of each function: the style puts these at a line's beginning."""
    begin = None
    for n, line in enumerate(text.split("\n"), 1):
        if line == "{":
            begin = n
        elif line.startswith("}") and begin:
            yield begin, n - begin - 1
            begin = None


n_functions = 0
for f in sources + [f for f in tracked if f.endswith(".cpp")]:
    text = open(f, encoding="utf-8", errors="replace").read()
    n_lines, long = text.count("\n"), ["%s:%d: %d lines" % (f, at, n) for at, n in functions(text) if n > MAX_FUNCTION]
    n_functions += sum(1 for _ in functions(text))
    ok(f in LARGE or n_lines <= MAX_FILE, "file size", "%s has %d lines" % (f, n_lines))
    ok(f not in LARGE or n_lines > MAX_FILE or long, "file size", "%s is not large: it needs no exception" % f)
    ok(f in LARGE or not long, "function size", "\n".join(long))
ok(n_functions > 2000, "function size", "only %d functions found" % n_functions)
ok(not set(LARGE) - set(tracked), "file size", "exceptions for files that are not there: %s" % (set(LARGE) - set(tracked)))
ok([n for _, n in functions("int f(void)\n{\n" + "    f();\n" * 101 + "}\n")] == [101], "the size rule", "does not count a function's lines")

# ---- what programs link ----
ALLOWED = {"vplan": r"libjansson|libsqlite3|libyaml-0|libm|libc", "vplan-run": r"libjansson|libm|libc|libopenblas|libgomp|libomp|libpthread", "vplan-solve": r"libglpk|libjansson|libm|libc"}
for program, allowed in sorted(ALLOWED.items()):
    path = "%s/%s" % (build, program)
    if not os.path.exists(path):
        ok(program != "vplan" and program != "vplan-run", "links", "%s is not built" % path)
        continue
    out = subprocess.run(["readelf", "-d", path], stdout=subprocess.PIPE).stdout.decode()
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", out)
    ok(len(needed) >= 2, "links", "readelf names no libraries of %s" % path)
    for library in needed:
        ok(re.match(r"(%s)\.so" % allowed, library), "links", "%s needs %s" % (program, library))

# ---- nothing of one machine, no hosts of package registries ----
HOME = [r"/(home|Users)/[a-z]", r"/root/", r"(?<![\w.])/work/", r"[A-Z]:\\\\Users"]
HOSTS = ["pypi" + r"\.org", "files" + r"\.pythonhosted\.org", "registry" + r"\.npmjs\.org", "crates" + r"\.io", "proxy" + r"\.golang\.org", "rubygems" + r"\.org",
         "repo1" + r"\.maven\.org", "conda" + r"\.anaconda\.org", "deb" + r"\.debian\.org", "archive" + r"\.ubuntu\.com", "download" + r"\.pytorch\.org"]
pattern = re.compile("|".join(HOME + HOSTS + [re.escape(os.path.realpath(".")) + "/"]))
me = "tests/test_folders.sh"
for f in tracked:
    if os.path.islink(f) or f == me:
        continue
    data = open(f, "rb").read()
    if data[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe") or data[:2] == b"MZ" or data[:8] == b"!<arch>\n" or data[:4] == b"\0asm":
        ok(False, "binaries", "%s is an executable or a library" % f)
        continue
    if b"\0" in data[:8000]:
        ok(f.endswith((".safetensors", ".bin", ".npy", ".gz", ".pickle", ".png")), "binaries", "%s is binary" % f)
        continue
    hits = ["%s:%d: %s" % (f, n, m.group(0)) for n, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1) for m in [pattern.search(line)] if m]
    ok(not hits, "paths and hosts", "\n".join(hits[:5]))
# ---- nothing refers to what is not in the repository; relative links lead somewhere ----
ELSEWHERE = re.compile(r"\bDESIGN\b(?!\.)|\bDESIGN\.md|\bINTERFACE('s|\.md)|HOUSE_STYLE")
for text, want in ("as DESIGN section 8 says", True), ("INTERFACE's object", True), ("HOUSE_STYLE.md", True), ("docs/design.md, conventions", False), ("-DINTERFACE", False):
    ok(bool(ELSEWHERE.search(text)) == want, "the rule about documents elsewhere", text)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
for f in tracked:
    if f == me or os.path.islink(f) or not f.endswith((".c", ".h", ".def", ".cu", ".cpp", ".py", ".sh", ".md", ".mk", "Makefile")):
        continue
    text = open(f, encoding="utf-8", errors="replace").read()
    found = sorted({m.group(0) for m in ELSEWHERE.finditer(text)})
    ok(not found, "documents elsewhere", "%s refers to %s: docs/design.md is the project's own" % (f, ", ".join(found)))
    if f.endswith(".md"):
        dead = [link for link in LINK.findall(text) if not os.path.exists(os.path.join(os.path.dirname(f), link))]
        ok(not dead, "links", "%s leads nowhere: %s" % (f, ", ".join(dead)))
large = [f for f in tracked if os.path.getsize(f) > 4 << 20]
ok(not large, "large files", large)
odd = [f for f in tracked if not re.fullmatch(r"[\w./+-]+", f, re.A)]
ok(not odd, "names of files", odd)  # a pattern that nothing matched is a name to touch
ignored = subprocess.run(["git", "ls-files", "-ci", "--exclude-standard"], stdout=subprocess.PIPE).stdout.decode().split()
ok(not ignored, "tracked files that .gitignore names", ignored)
# ---- mistakes that are made on purpose still fit the sources they are aimed at ----
sys.path.insert(0, "tests/mutate")
import mutate
mutants = mutate.read_mutants("tests/mutate/mutants.txt")
ok(len(mutants) >= 150, "mutants", len(mutants))
for m in mutants:
    ok(open(m["file"], encoding="utf-8").read().count(m["old"]) == 1, "mutants.txt:%d fits its source no longer" % m["line"], m["old"])
finish()
P

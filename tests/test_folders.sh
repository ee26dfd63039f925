#!/bin/bash
# tests/test_folders.sh: the tree keeps its directions: who includes whom, who links what, a README in every folder, file names
# once, nothing of one machine and no binaries in the repository. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
git rev-parse --is-inside-work-tree > /dev/null 2>&1 || { echo "SKIP: not a git checkout, so the tracked files are not known"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
python3 - "${BUILD:-build}" <<'P'
import os, re, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

build = sys.argv[1]

MAY = {  # folder: where its "..." includes may come from. cli/, tests/ and bench/: from everywhere.
    "core": {"core"}, "models": {"core", "models"}, "planner": {"core", "models", "planner"}, "kernels": {"core", "kernels"},
    "runtime": {"core", "kernels", "runtime"}, "tuner": {"core", "models", "planner", "tuner"},
}
EVERYWHERE = {"cli", "tests", "bench"}
# kernels/null stands in for the CUDA libraries: its own programs, no part of vplan's libraries.
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
        to = m.group(1).split("/")[0]
        if "/" not in m.group(1) and top != "tests" and not path.startswith("kernels/null/"):
            out.append("%s:%d: includes \"%s\": paths start at the root" % (path, n, m.group(1)))
        elif top in MAY and "/" in m.group(1) and to not in MAY[top]:
            out.append("%s:%d: %s/ may not include %s" % (path, n, top, m.group(1)))
        elif top not in MAY and top not in EVERYWHERE:
            out.append("%s: nobody says what %s/ may include" % (path, top))
    return out


for f in sources:
    wrong = wrong_includes(f, open(f, encoding="utf-8", errors="replace").read())
    ok(not wrong, "includes", "\n".join(wrong))
# the rule itself finds what it is for
for path, line in ("core/x.c", "models/graph.h"), ("planner/x.c", "runtime/runtime.h"), ("runtime/x.c", "planner/planner.h"), ("kernels/cpu/x.c", "runtime/data.h"), \
        ("models/x.c", "planner/pack.h"), ("tuner/x.c", "runtime/runtime.h"), ("core/x.c", "json.h"), ("extra/x.c", "core/err.h"):
    ok(wrong_includes(path, '#include "%s"\n' % line), "the include rule", "does not see that %s includes %s" % (path, line))
for path, line in ("core/x.c", "core/err.h"), ("tuner/x.c", "planner/planner.h"), ("cli/x.c", "runtime/runtime.h"), ("runtime/x.c", "kernels/backend.h"):
    ok(not wrong_includes(path, '#include "%s"\n' % line), "the include rule", "forbids %s to include %s" % (path, line))

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

# ---- what programs link ----
ALLOWED = {"vplan": r"libjansson|libsqlite3|libm|libc", "vplan-run": r"libjansson|libm|libc|libopenblas|libgomp|libomp|libpthread", "vplan-solve": r"libglpk|libjansson|libm|libc"}
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
large = [f for f in tracked if os.path.getsize(f) > 4 << 20]
ok(not large, "large files", large)
ignored = subprocess.run(["git", "ls-files", "-ci", "--exclude-standard"], stdout=subprocess.PIPE).stdout.decode().split()
ok(not ignored, "tracked files that .gitignore names", ignored)
finish()
P

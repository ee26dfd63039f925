#!/bin/bash
# tests/test_cuda_build.sh: what the CUDA toolkit makes of kernels/cuda: compiled for every architecture, nothing spilled, one symbol exported; and what
# vplan says where there is no GPU. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
plugin=$BUILD/vplan-cuda.so
[ -e "$plugin" ] || { echo "SKIP: no CUDA toolkit here, so vplan-cuda.so was not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$BUILD/vplan-run" --describe --backend cuda --json > "$work/out" 2> "$work/err"
echo $? > "$work/code"
"$BUILD/vplan" devices > "$work/devices" 2>&1
python3 - "$BUILD" "$work" <<'P'
import glob, os, re, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok, skip

build, work = sys.argv[1:]
archs = ["80", "86", "89", "90", "100", "120"]


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()


# ---- the compiler's report: each kernel once for each architecture, no spill ----
sources = sorted(glob.glob("kernels/cuda/*.cu"))
ok(len(sources) >= 10, "the kernels", sources)
for source in sources:
    path = "%s/cuda/%s.ptxas" % (build, source)
    text = open(path).read() if os.path.exists(path) else ""
    entries = re.findall(r"Compiling entry function '(\w+)' for 'sm_(\d+)\w*'(.*?)(?=ptxas info\s+: Compiling|\Z)", text, re.S)
    kernels = {name for name, _, _ in entries}
    ok(kernels and all(len([1 for n, a, _ in entries if n == name and a == arch]) == 1 for name in kernels for arch in archs),
       "%s is compiled for %s" % (source, ", ".join(archs)), sorted({a for _, a, _ in entries}))
    spilled = ["%s for sm_%s: %s" % (name, arch, s) for name, arch, rest in entries for s in re.findall(r"[1-9]\d* bytes spill \w+", rest)]
    ok(not spilled, "%s spills nothing" % source, "\n".join(spilled[:8]))
    ok("warning" not in text, "%s compiles without a warning" % source, text[:500])

# ---- the plugin ----
# A machine with a GPU may have the CUDA libraries and none of ours.
for path in sorted(glob.glob(build + "/cuda/*/**/*.o", recursive=True)):
    source = re.sub(r"(\.cu)?\.o$", "", os.path.relpath(path, build + "/cuda"))
    source = source + (".cu" if path.endswith(".cu.o") else ".c")
    read = output("gcc", "-x", "c++" if path.endswith(".cu.o") else "c", "-I.", "-M", "-MG", source)
    ok(source in read and not re.search(r"(jansson|sqlite3|glpk|cblas|cmocka)\.h", read), "%s needs no header of the host programs' libraries" % source, read[-600:])
exported = [line.split()[-1] for line in output("nm", "-D", "--defined-only", build + "/vplan-cuda.so").splitlines() if " T " in line]
ok(exported == ["vp_backend_open"], "one function is exported", exported)
needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", output("readelf", "-d", build + "/vplan-cuda.so"))
ok(any(n.startswith("libcublasLt.") for n in needed), "it links cuBLASLt", needed)
ok(not [n for n in needed if re.match(r"lib(cuda|cudnn|cudart|nvidia-ml|cublas|glpk|jansson|openblas)\.", n)], "cuDNN and the driver are opened at run time only", needed)

# ---- where there is no GPU: a reason, and exit code 5 ----
code, out, err = int(open(work + "/code").read()), open(work + "/out").read(), open(work + "/err").read()
devices = open(work + "/devices").read()
if code == 0:
    skip("there is a GPU here")
    ok("Here runs the CUDA backend:" in devices, "vplan devices says what runs here", devices[-600:])
else:
    ok(code == 5 and '"error"' in out and re.search(r"driver|device", err), "no GPU is exit 5 with the reason", "%d %s %s" % (code, out, err))
    ok("Here runs the CPU backend. The CUDA backend does not:\n  " in devices, "vplan devices says why", devices[-600:])
finish()
P

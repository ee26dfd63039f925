#!/bin/bash
# tests/test_hardening.sh: what readelf says of the programs: position-independent, relocations read-only before main(), guarded stacks, checked
# copies, no path of the machine that built them; and that install and uninstall put and remove the same files, whatever PREFIX is called.
# The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
python3 - "$BUILD" <<'P'
import glob, os, re, shutil, subprocess, sys, tempfile

sys.path.insert(0, "tests")
from check import finish, ok, skip

build = sys.argv[1]


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], stdout=subprocess.PIPE, check=True).stdout.decode()


def faults(path, program=True, own_text=True):
    """What is missing of a program or library; own_text: it has functions that read what others wrote."""
    dynamic, out = readelf("-d", path), []
    if "DYN" not in readelf("-h", path) or (program and not re.search(r"FLAGS_1.*\bPIE\b", dynamic)):
        out.append("not position-independent")
    if "GNU_RELRO" not in readelf("-l", path):
        out.append("no RELRO")
    if not re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", dynamic):
        out.append("bound lazily, so RELRO is not full")
    if re.search(r"GNU_STACK.* RWE ", readelf("-l", path)):
        out.append("an executable stack")
    for folder in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic):
        if [d for d in folder.split(":") if not d.startswith("$ORIGIN")]:
            out.append("looks for libraries in " + folder)
    symbols = readelf("--dyn-syms", path)
    if own_text and "__stack_chk_fail" not in symbols:
        out.append("stacks without guards")
    if own_text and not re.search(r"__\w+_chk@", symbols):
        out.append("copies that nobody checks")
    return out


programs = ["vplan", "vplan-run", "vplan-solve", "vplan-cudnn-query"]
for name in programs:
    path = build + "/" + name
    ok(os.path.exists(path) and not faults(path), name, ", ".join(faults(path)) if os.path.exists(path) else "is not built")
ok(not faults(build + "/null/libvplan-null.so", program=False), "libvplan-null.so", ", ".join(faults(build + "/null/libvplan-null.so", program=False)))
for path in glob.glob(build + "/vplan-cuda.so"):
    ok(not faults(path, program=False), "vplan-cuda.so", ", ".join(faults(path, program=False)))
if not os.path.exists(build + "/vplan-cuda.so"):
    skip("no CUDA toolkit here, so vplan-cuda.so was not built")

work = tempfile.mkdtemp()
try:
    # the rule itself sees what it is for: one program linked without any of it
    with open(work + "/plain.c", "w") as f:
        f.write("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-O0", "-fno-stack-protector", "-no-pie", "-fno-pie", "-Wl,-z,norelro,-z,lazy,-rpath,/opt/toolkit/lib64", work + "/plain.c", "-o", work + "/plain"], check=True)
    ok(len(faults(work + "/plain")) == 6, "the rules", faults(work + "/plain"))

    # ---- install and uninstall ----
    stage = work + "/a stage"
    keep = stage + "/opt/my programs/bin/another"
    os.makedirs(os.path.dirname(keep))
    open(keep, "w").close()
    make = ["make", "-s", "--no-print-directory", "BUILD=" + build, "DESTDIR=" + stage, "PREFIX=/opt/my programs"]
    if not os.path.exists(build + "/vplan-cuda.so"):
        make.append("NVCC=")  # what is not built is not built for this
    done = subprocess.run(make + ["install"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    ok(done.returncode == 0, "make install where PREFIX has a space", done.stdout.decode()[-600:])
    prefix = stage + "/opt/my programs"
    for file in ["bin/vplan", "lib/vplan/vplan-run", "lib/vplan/vplan-solve", "lib/vplan/null/libvplan-null.so", "lib/vplan/null/probe/sitecustomize.py", "share/man/man1/vplan.1"]:
        ok(os.path.exists(prefix + "/" + file), "installed", file)
    answer = subprocess.run([prefix + "/bin/vplan", "plan", "gpt2-tiny", "--device", "cpu", "--budget", "30MB", "--seq", "128", "--global-batch", "8", "--json"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=work)
    ok(answer.returncode == 0 and b'"checked_by"' in answer.stdout and b"fallback" not in answer.stdout, "the installed vplan finds its solver", answer.stdout.decode()[-300:])
    done = subprocess.run(make + ["uninstall"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    left = [os.path.join(d, f) for d, _, files in os.walk(stage) for f in files]
    ok(done.returncode == 0 and left == [keep], "make uninstall removes what was installed and nothing else", (done.stdout.decode()[-300:], left))
    ok(not os.path.exists(prefix + "/lib/vplan"), "make uninstall", "leaves lib/vplan")

    # ---- a plugin whose library only a toolkit has: runtime/plugin.c ----
    def library(source, path, *flags):
        with open(work + "/source.c", "w") as f:
            f.write(source)
        subprocess.run(["gcc", "-shared", "-fPIC", work + "/source.c", "-o", path, *flags], check=True)

    os.makedirs(work + "/toolkit/lib64")
    library("int answer(void) { return 42; }\n", work + "/toolkit/lib64/libonlyhere.so.7", "-Wl,-soname,libonlyhere.so.7")
    library("int answer(void); int ask(void) { return answer(); }\n", work + "/plugin.so", work + "/toolkit/lib64/libonlyhere.so.7")
    for home, want in ("", "libonlyhere.so.7: cannot open"), (work + "/toolkit", "is not a backend of vplan"):
        out = subprocess.run([build + "/vplan-run", "--describe", "--backend", work + "/plugin.so"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, CUDA_HOME=home))
        ok(out.returncode == 5 and want in out.stdout.decode(), "a plugin's library is found in CUDA_HOME %r" % home, (out.returncode, out.stdout.decode()))
finally:
    shutil.rmtree(work)
finish()
P

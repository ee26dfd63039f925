#!/usr/bin/env python3
# tests/dryrun/check_forks.py: a run that is forked from a process that has imported its packages says what a fresh one says.
#     python3 tests/dryrun/check_forks.py --vplan build/vplan --python PYTHON [--device D] [--steps N] [--show] -- SCRIPT [ARGUMENT...]
# The document of a fresh run, and those of two that are forked from one process: equal, all but host_bytes, which only a forked run has.
# --show: seconds of each, processor's and by the clock.
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

p = argparse.ArgumentParser()
p.add_argument("--vplan", default="build/vplan")
p.add_argument("--python", default="python3")
p.add_argument("--device", default="a100-sxm-40gb")
p.add_argument("--steps", default="2")
p.add_argument("--show", action="store_true")
p.add_argument("command", nargs="+")
a = p.parse_args()
vplan = os.path.abspath(a.vplan)
zygote = os.path.join(os.path.dirname(vplan), "null", "probe", "vplan_zygote.py")
words = [vplan, "dryrun", "--json", "--time", "--no-owners", "--steps", a.steps, "--device", a.device, "--"]
command = [a.python] + a.command


def processor_s():
    u = resource.getrusage(resource.RUSAGE_CHILDREN)
    return u.ru_utime + u.ru_stime


def played(name, variables):
    start, before = time.monotonic(), processor_s()
    with tempfile.TemporaryFile("w+") as said:
        out = subprocess.run(words + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, env=dict(os.environ, **variables))
        said.seek(0)
        text = said.read()
    if a.show:
        print("%s: %.1f s, of the processor %.1f s" % (name, time.monotonic() - start, processor_s() - before), flush=True)
    if not out.stdout:
        sys.exit("%s: no document\n%s" % (name, text[-2000:]))
    return json.loads(out.stdout), out.returncode, text


fresh, fresh_code, _ = played("fresh", {})
wrong = []
with tempfile.TemporaryDirectory() as folder:
    at = os.path.join(folder, "forks")
    with open(os.path.join(folder, "said"), "w+") as said:
        run = subprocess.Popen(words + [a.python, zygote, at] + command[:2], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        for name in ("first fork", "second fork"):
            d, code, text = played(name, {"VPLAN_FORKS_AT": at})
            if not d.pop("host_bytes", 0):
                said.seek(0)
                wrong.append("%s: it was no fork: %s" % (name, said.read()[-1000:]))
            wrong += ["%s: %s is %s, not %s" % (name, k, str(d.get(k))[:300], str(fresh.get(k))[:300]) for k in sorted({**d, **fresh}) if d.get(k) != fresh.get(k)]
            if code != fresh_code:
                wrong.append("%s: exit code %d, not %d" % (name, code, fresh_code))
        start, before = time.monotonic(), processor_s()
        run.terminate()
        run.wait()
        if a.show:
            print("the process that forks: of the processor %.1f s, its runs included" % (processor_s() - before))
print("\n".join(wrong) or "right: %s, %d bytes" % (fresh["verdict"], fresh["allocated_peak_bytes"]))
sys.exit(bool(wrong))

# tests/dryrun/play_space.py: every setting of a command inside one dry run: what they import is imported once, before the device
# is touched, and each setting is a fork of that, with a probe and a stand-in of its own. For tests/dryrun/tune_commands.py.
#     vplan dryrun ... -- python3 play_space.py JOBS.json REPORTS
# JOBS.json: {"imports": [...], "jobs": [[NAME, [words of a Python command, without the Python]], ...]}; REPORTS gets
# NAME.json as the probe of that setting wrote it, with "exit_code".
import atexit
import importlib
import json
import os
import runpy
import sys
import tempfile

import vplan_probe

jobs = json.load(open(sys.argv[1]))
reports = os.path.abspath(sys.argv[2])
import torch  # noqa: F401, E402
for name in jobs["imports"]:
    importlib.import_module(name)


def play(words):
    probe = vplan_probe._probe
    probe.pid, probe.dead = os.getpid(), False
    os.chdir(tempfile.mkdtemp(dir=reports))
    sys.argv = words
    code = 0
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else e.code is not None
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)


for name, words in jobs["jobs"]:
    done = os.path.join(reports, name + ".json")
    if os.path.exists(done):
        continue
    pid = os.fork()
    if not pid:
        play(words)
    _, status = os.waitpid(pid, 0)
    wrote = os.path.join(os.environ["VPLAN_NULL_REPORT"], "report.%d.json" % pid)
    report = json.load(open(wrote)) if os.path.exists(wrote) else {}
    report["exit_code"] = os.waitstatus_to_exitcode(status)
    with open(done + ".tmp", "w") as f:
        json.dump(report, f)
    os.rename(done + ".tmp", done)
    if os.path.exists(wrote):
        os.unlink(wrote)
os._exit(0)

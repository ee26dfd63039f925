# tests/dryrun/play_space.py: every setting of a command inside one dry run: what they import is imported once, before the device
# is touched, and each setting is a fork of that, with a probe and a stand-in of its own. For tests/dryrun/tune_commands.py.
#     vplan dryrun ... -- python3 play_space.py JOBS REPORTS MODULE...
# JOBS: a file, or a pipe that is written to as one goes on, of lines [FILE, [words of a Python command, without the Python], {variables}]. FILE, in
# REPORTS, is the report as the probe of that setting wrote it, with "exit_code". Variables may name another card or limit (VPLAN_NULL_*): the stand-in
# reads them again in the fork. What the first setting imported beside the MODULEs, of installed packages, is imported for the others.
import atexit
import ctypes
import importlib
import json
import os
import runpy
import sys
import tempfile

import vplan_probe

# whether there is a card is asked of NVML: PyTorch takes a process that asked CUDA for one that must not fork
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
jobs, modules = open(sys.argv[1]), sys.argv[3:]
reports = os.path.abspath(sys.argv[2])
asked = os.path.join(reports, os.pardir, "asked")        # modules that asked for a device, in a command played before too
left_out = json.load(open(asked)) if os.path.exists(asked) else []
tried = set()
import torch  # noqa: F401, E402
for name in modules:
    importlib.import_module(name)


def installed():
    """Modules of installed packages that are loaded."""
    return sorted(name for name, m in list(sys.modules.items()) if "site-packages" in str(getattr(m, "__file__", "")))


def play(words, variables):
    os.environ.update(variables)
    ctypes.CDLL("libvplan-null.so").vplan_null_set_device()     # something imported may have asked for the card's name
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
    with open(os.path.join(reports, "modules"), "w") as f:
        json.dump(installed(), f)
    os._exit(code)


def imported(names):
    """Import them; the first after which the device is touched, or None. A package may do so when it is imported (bitsandbytes)."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:   # one that its package makes by itself
            pass
        if torch.cuda.is_initialized():
            return name
    return None


def import_more():
    """What asks for a device when it is imported, and what is inside it, is left to each setting. Found out by a fork, since this process must not
    touch it; a fork in which nothing asked plays the settings that are left, and this one waits."""
    with open(os.path.join(reports, "modules")) as f:
        names = sorted(set(json.load(f)) - set(installed()) - tried)
    tried.update(names)
    while names := [n for n in names if not any(n == out or n.startswith(out + ".") for out in left_out)]:
        out, into = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(out)
            asking = imported(names)
            if not asking:
                os.close(into)
                return
            os.write(into, asking.encode())
            os._exit(0)
        os.close(into)
        with os.fdopen(out) as f:
            asking = f.read()
        if not asking:
            _, status = os.waitpid(pid, 0)
            os._exit(os.waitstatus_to_exitcode(status) != 0)
        os.waitpid(pid, 0)
        left_out.append(asking)
        with open(asked, "w") as f:
            json.dump(left_out, f)


for line in jobs:
    done, words, variables = json.loads(line)
    done = os.path.join(reports, done)
    pid = os.fork()
    if not pid:
        play(words, variables)
    _, status = os.waitpid(pid, 0)
    wrote = os.path.join(os.environ["VPLAN_NULL_REPORT"], "report.%d.json" % pid)
    report = json.load(open(wrote)) if os.path.exists(wrote) else {}
    report["exit_code"] = os.waitstatus_to_exitcode(status)
    with open(done + ".tmp", "w") as f:
        json.dump(report, f)
    os.rename(done + ".tmp", done)
    if os.path.exists(wrote):
        os.unlink(wrote)
    if os.path.exists(os.path.join(reports, "modules")):
        import_more()
        os.unlink(os.path.join(reports, "modules"))
os._exit(0)

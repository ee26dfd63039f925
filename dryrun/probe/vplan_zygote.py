# dryrun/probe/vplan_zygote.py: runs a Python script several times, each time in a fork of this process, which has done what the script does first:
# import installed packages. For `vplan tune -- python SCRIPT ...`, whose trials differ in their arguments alone.
#     vplan dryrun ... -- python vplan_zygote.py SOCKET python SCRIPT [ARGUMENT...]
# Runs are asked for at SOCKET by stand_in/play_forked.c, which says there what the protocol is. A run is refused, and then started afresh, where
# it might not be what a fresh one is: another interpreter, script or environment, or a thread in this process that a fork would not have.
import array
import ast
import ctypes
import importlib.machinery
import importlib.util
import os
import socket
import struct
import sys
import sysconfig
import types

import vplan_probe

HERE = os.path.dirname(os.path.abspath(__file__))
# what each dry run has of its own, which imports do not read: they go into folders
OWN = {"VPLAN_NULL_REPORT", "VPLAN_NULL_BEGAN", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
FORKS = "VPLAN_NULL_FORKS"
# threads of others that a fork may lose: jemalloc's own handlers start it anew
RESTARTED = {"jemalloc_bg_thd", "vplan-guard"}
SITE = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))
STDLIB = tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib"))


SCRIPTS = types.ModuleType("__main__")          # one for what is imported first and for each run


# ---- what a script does first ----

def origin_of(name, folder):
    """Where an import of a name comes from: "installed", "python", or "" for anything else, as what lies beside the script."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return ""
    if spec is None or spec.origin is None:
        return ""
    if spec.origin in ("built-in", "frozen"):
        return "python"
    path = os.path.realpath(spec.origin)
    if path.startswith(os.path.realpath(folder) + os.sep):
        return ""
    return "installed" if any(s in spec.origin for s in SITE) else "python" if path.startswith(STDLIB) else ""


def is_environ(node):
    return (isinstance(node, ast.Attribute) and node.attr == "environ" and isinstance(node.value, ast.Name) and node.value.id == "os")


def is_constant(node):
    return isinstance(node, ast.Constant)


def changes_nothing_twice(node):
    """Whether doing it twice is doing it once: a text, a constant with a name, a variable of the environment that is set to one."""
    if isinstance(node, ast.Expr) and is_constant(node.value):
        return True
    if isinstance(node, ast.Assign) and is_constant(node.value) and len(node.targets) == 1:
        to = node.targets[0]
        return isinstance(to, ast.Name) or isinstance(to, ast.Subscript) and is_environ(to.value) and is_constant(to.slice)
    call = node.value if isinstance(node, ast.Expr) else None
    return (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "setdefault" and is_environ(call.func.value)
            and not call.keywords and all(is_constant(a) for a in call.args))


def beginning(source, path):
    """The statements that a script begins with and that are imports of what is installed or leave nothing else; None where no package is among them."""
    folder, kept, packages = os.path.dirname(path), [], 0
    for node in ast.parse(source, path).body:
        if isinstance(node, ast.Import):
            origins = {origin_of(a.name.split(".")[0], folder) for a in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            origins = {origin_of(node.module.split(".")[0], folder)}
        elif changes_nothing_twice(node):
            origins = {"python"}
        else:
            break
        if "" in origins:
            break
        kept.append(node)
        packages += "installed" in origins
    return ast.Module(kept, []) if packages else None


def main_module(path):
    """`__main__`, as Python makes it for a script, in the place of ours; the same one each time, for imports may have kept it (multiprocessing, dill)."""
    main = SCRIPTS
    main.__dict__.clear()
    types.ModuleType.__init__(main, "__main__")
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=sys.modules["builtins"],
                         __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    sys.modules["__main__"] = main
    return main


def path_of(script, cwd):
    """As Python names a script to itself."""
    return os.path.join(cwd, script) if sys.version_info >= (3, 9) else script


# ---- the process that runs are forked from ----

def threads():
    """Threads beside the main one that a fork would lose for good. OpenBLAS ends its own at a fork, to start them when they are needed."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    names = []
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open("/proc/self/task/%s/comm" % task) as f:
                names.append(f.read().strip())
    return [n for n in names if n not in RESTARTED]


def environment_at_start():
    with open("/proc/self/environ", "rb") as f:
        return variables(f.read().split(b"\0"))


def variables(rows):
    pairs = (os.fsdecode(r).partition("=") for r in rows if b"=" in r)
    return {name: value for name, _, value in pairs if name not in OWN and name != FORKS}


class Zygote:
    def __init__(self, words):
        self.words, self.why = words, ""
        with open(words[1], "rb") as f:
            self.source = f.read()
        self.environment = environment_at_start()
        self.libraries = ctypes.CDLL("libvplan-null.so")
        self.libc = ctypes.CDLL(None)

    def import_all(self):
        """Do what the script does first; say why no run can be forked, or ""."""
        path = path_of(self.words[1], os.getcwd())
        sys.argv, sys.path[0] = self.words[1:], os.path.dirname(os.path.realpath(path))
        if getattr(sys.flags, "safe_path", False):
            return "the script's folder is not where imports look first"
        begins = beginning(self.source, path)
        if begins is None:
            return "the script imports no package first"
        os.environ[FORKS] = "1"
        exec(compile(begins, path, "exec", dont_inherit=True), main_module(path).__dict__)
        here = os.path.realpath(os.getcwd()) + os.sep
        if any((os.path.realpath(p) + os.sep).startswith(here) for p in sys.path[1:]):
            return "imports look in the folder that it is run in, by PYTHONPATH"
        used = vplan_probe._probe.counters()
        if used.get("device_bytes") or used.get("n_launch"):
            return "an import used the device"
        alive = threads()
        return "threads: " + " ".join(alive) if alive else ""

    def refusal(self, words, environment):
        """Why a run cannot be a fork of this process."""
        if self.why:
            return self.why
        if words[:2] != self.words[:2]:
            return "another command"
        asked = variables(environment)
        others = sorted(n for n in {**asked, **self.environment} if asked.get(n) != self.environment.get(n))
        if others:
            return "another environment: " + " ".join(others)
        return ""

    def run(self, connection, fds, cwd, words, environment):
        """In a fork: become a run of the script, or the process that watches over it. Returns the code to execute."""
        connection.sendall(b"y")               # who asked may be gone: then nothing runs
        os.setsid()
        self.libc.prctl(36, 1, 0, 0, 0)        # PR_SET_CHILD_SUBREAPER
        parent, pid = os.getpid(), os.fork()
        os.environ.pop(FORKS, None)
        own = {os.fsdecode(k): os.fsdecode(v) for k, _, v in (r.partition(b"=") for r in environment) if os.fsdecode(k) in OWN}
        if pid:
            os.set_inheritable(connection.fileno(), True)
            os.execve(os.path.join(os.path.dirname(HERE), "play-forked"), ["play-forked", "--wait", str(connection.fileno()), str(pid)],
                      dict(os.environ, **own))
        self.libc.prctl(1, 9, 0, 0, 0)         # PR_SET_PDEATHSIG, SIGKILL
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        for i, fd in enumerate(fds):
            os.dup2(fd, i)
            os.close(fd)
        connection.close()
        os.chdir(cwd)
        os.environ.update(own)
        self.libraries.vplan_null_run_begins()
        vplan_probe._probe.begin_run()
        path = path_of(words[1], os.getcwd())
        sys.argv, sys.path[0] = words[1:], os.path.dirname(os.path.realpath(path))
        if hasattr(sys, "orig_argv"):
            sys.orig_argv = words
        spawning = sys.modules.get("multiprocessing.process")
        if spawning is not None:               # the folder that it was imported in, for workers that are started afresh
            spawning.ORIGINAL_DIR = os.getcwd()
        with open(path, "rb") as f:
            source = f.read()
        return compile(source, path, "exec", dont_inherit=True), main_module(path).__dict__

    def serve(self, listening):
        """Fork runs as they are asked for; returns in each of them."""
        while True:
            connection, _ = listening.accept()
            while os.waitpid(-1, os.WNOHANG)[0] if self.started else False:
                self.started -= 1
            fds, (cwd, words, environment) = received(connection)
            why = "no request" if len(fds) != 3 else self.refusal(words, environment)
            try:
                with open(os.path.join(cwd, words[1]) if not why else os.devnull, "rb") as f:
                    why = why or ("another script" if f.read() != self.source else "")
            except OSError as e:
                why = str(e)
            if why:
                sys.stderr.write("vplan dryrun: a run is started afresh: %s\n" % why)
            sys.stdout.flush()
            sys.stderr.flush()
            pid = -1
            try:
                pid = pid if why else os.fork()
                if pid < 0:
                    connection.sendall(b"n")
            except OSError as e:               # who asked was ended meanwhile, or there is no room for a process
                sys.stderr.write("vplan dryrun: a run that was asked for: %s\n" % e)
            if not pid:
                listening.close()
                return self.run(connection, fds, cwd, words, environment)
            self.started += pid > 0
            for fd in fds:
                os.close(fd)
            connection.close()

    started = 0


def received(connection):
    """Three files, and the current folder, the words and the environment of a run."""
    head, control, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * 4))
    fds = array.array("i")
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[:len(data) - len(data) % 4])
    n, data = struct.unpack("=Q", head)[0] if len(head) == 8 else 0, b""
    while len(data) < n:
        piece = connection.recv(min(n - len(data), 1 << 20))
        if not piece:
            return [], ("", ["", ""], [])
        data += piece
    rows = data.split(b"\0")[:-1]
    n_words = int(rows[1]) if len(rows) > 1 else 0
    return list(fds), (os.fsdecode(rows[0]) if rows else "", [os.fsdecode(w) for w in rows[2:2 + n_words]] + [""] * (2 - n_words), rows[2 + n_words:])


def main():
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(sys.argv[1] + ".new")
    listening.listen(64)
    os.rename(sys.argv[1] + ".new", sys.argv[1])         # who finds it finds a listener, or one that is gone
    zygote = Zygote(sys.argv[2:])
    try:
        zygote.why = zygote.import_all()
    except BaseException as e:       # the script will meet it too, and say so
        zygote.why = "%s: %s" % (type(e).__name__, e)
    return zygote.serve(listening)


ours = sys.modules["__main__"]       # kept alive where a script's takes its place
exec(*main())

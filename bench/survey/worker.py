"""Runs rows, each in a process of its own: reads one request a line on stdin, answers on the pipe given by --fd.

The worker imports torch, transformers and peft once and never touches CUDA itself. Each row runs in a fork of
it: a fresh process with its own CUDA context and allocator, without the seconds of importing. Where an import
has already touched CUDA (torch then refuses to use it in a fork) the fork executes this file anew instead.
Environment variables of a row are set before this program starts, so libraries read them at load.

Request: {"part": "1", "rows": [row, ...]}; several rows only where a part lets them share a process (part 3).
Answers: {"event": "hello", ...} once, then per row {"event": "row", "name", "measured", "raw_seconds", "error",
"wall_s"}, then {"event": "end"}. A crash or a time limit costs the row it happened in.
"""
import argparse
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback

PARTS = {"1": "part1_peaks", "2": "part2_outside", "3": "part3_rates", "4": "part4_peers"}
LIBRARIES = ("torch", "transformers", "peft", "accelerate", "triton", "bitsandbytes", "numpy")


def say(pipe, **event):
    os.write(pipe, (json.dumps(event) + "\n").encode())


def versions():
    """Versions of what the numbers depend on; None for what is not installed."""
    from importlib import metadata
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    import torch
    found.update(torch=torch.__version__, cuda=torch.version.cuda, python=sys.version.split()[0])
    try:
        found["cudnn"] = torch.backends.cudnn.version() if os.environ.get("SURVEY_STAND_IN") != "1" else None
    except RuntimeError:
        found["cudnn"] = None
    return found


def describe_device():
    """The card as CUDA reports it; runs in a fork."""
    import torch
    if torch.cuda._is_in_bad_fork():
        return {"gpu": None, "fork_ok": False}
    if not torch.cuda.is_available():
        return {"gpu": None}
    p = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {"gpu": p.name, "total_bytes": total, "free_bytes": free, "multiprocessors": p.multi_processor_count,
            "capability": [p.major, p.minor], "l2_bytes": p.L2_cache_size, "fork_ok": True,
            "libraries": versions()}


def perform(job, pipe):
    """A child's work: describe the card, or run rows."""
    if job["do"] == "describe":
        say(pipe, **describe_device())
    else:
        run_rows(job["part"], job["rows"], pipe)


def execute_anew(job, pipe):
    """Replace this fork by a fresh interpreter that does the job."""
    with tempfile.NamedTemporaryFile("w", delete=False) as f:
        json.dump(job, f)
    os.set_inheritable(pipe, True)
    os.execv(sys.executable, [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--fd", str(pipe), "--job", f.name])


CHILD = []                    # process group of the row that runs now


def kill_children():
    for pid in CHILD:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def stop(*_):
    """The driver asks the worker to end: the row that runs ends with it."""
    kill_children()
    os._exit(0)


def in_fork(job, limit_s, on_line, anew=False):
    """Fork, let the child do the job, hand each line it says to on_line, which returns the seconds until the next.

    Returns None, or in words why the child ended early."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(r)
        os.setpgid(0, 0)
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("1000")                     # if host memory runs out, the kernel is to take the row, not the survey
        try:
            execute_anew(job, w) if anew else perform(job, w)
            code = 0
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        os._exit(code)                          # no destructors: what a row measured cannot be lost in teardown
    CHILD.append(pid)
    os.close(w)
    pending, why, deadline = b"", None, time.monotonic() + limit_s
    while True:
        ready, _, _ = select.select([r], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            why = f"time limit of {limit_s:g} s"
            break
        chunk = os.read(r, 1 << 20)
        if not chunk:
            break
        pending += chunk
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            deadline = time.monotonic() + on_line(json.loads(line))
    os.close(r)
    kill_children()                             # the child and what it started; gone already in the usual case
    _, status = os.waitpid(pid, 0)
    CHILD.clear()
    if why is None and os.WIFSIGNALED(status):
        why = f"ended by signal {os.WTERMSIG(status)}"
    elif why is None and os.WIFEXITED(status) and os.WEXITSTATUS(status):
        why = f"exit status {os.WEXITSTATUS(status)}"
    return why


def run_rows(part, rows, pipe):
    """In the fork: run the rows one after the other, one line of answer each."""
    module = __import__(PARTS[part])
    for row in rows:
        begun, answer = time.monotonic(), {"measured": None, "raw_seconds": [], "error": None}
        try:
            measured, raw = module.run(row)
            answer.update(measured=measured, raw_seconds=raw)
        except Exception as e:
            traceback.print_exc()
            answer["error"] = f"{type(e).__name__}: {str(e).splitlines()[0][:300] if str(e) else ''}"
        say(pipe, event="row", name=row["name"], wall_s=round(time.monotonic() - begun, 3), **answer)
        if answer["error"] and "CUDA error" in answer["error"]:
            raise SystemExit(1)                 # sticky: nothing after it in this process can be believed


def serve(requests, pipe, anew):
    for line in requests:
        request = json.loads(line)
        waiting = list(request["rows"])
        while waiting:
            begun = time.monotonic()

            def one(event):
                done = waiting.pop(0)
                assert done["name"] == event["name"]
                say(pipe, **event)
                return waiting[0]["limit_s"] if waiting else 30.0
            before = len(waiting)
            why = in_fork({"do": "rows", "part": request["part"], "rows": list(waiting)}, waiting[0]["limit_s"], one, anew)
            if waiting and (why or len(waiting) == before):     # the row in progress is lost, the others go on
                lost = waiting.pop(0)
                say(pipe, event="row", name=lost["name"], measured=None, raw_seconds=[],
                    error=why or "the process ended without an answer", wall_s=round(time.monotonic() - begun, 3))
        say(pipe, event="end")


def preload():
    """Import what rows need without touching CUDA."""
    import torch
    if os.environ.get("SURVEY_STAND_IN") == "1":
        torch._C._cuda_getDeviceCount = lambda: 1     # the real call marks this process as unfit to fork
        torch.set_num_threads(1)
    import transformers
    transformers.logging.set_verbosity_error()
    try:
        import peft  # noqa: F401
    except ImportError:
        pass
    import transformers.masking_utils  # noqa: F401
    import transformers.models.auto.modeling_auto  # noqa: F401


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--fd", type=int, required=True)
    a.add_argument("--job", help="file with one job: do it and end")
    a = a.parse_args()
    os.dup2(2, 1)                               # what libraries print goes to the log, never among the answers
    preload()
    if a.job:
        with open(a.job) as f:
            job = json.load(f)
        os.unlink(a.job)
        perform(job, a.fd)
        return
    signal.signal(signal.SIGTERM, stop)
    hello, anew = {}, False
    why = in_fork({"do": "describe"}, 120, lambda e: hello.update(e) or 30.0)
    if hello.get("fork_ok") is False:
        anew = True
        why = in_fork({"do": "describe"}, 120, lambda e: hello.update(e) or 30.0, anew)
    say(a.fd, **dict(hello, event="hello", why=why))
    serve(sys.stdin, a.fd, anew)


if __name__ == "__main__":
    main()

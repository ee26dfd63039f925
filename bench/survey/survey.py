#!/usr/bin/env python3
"""The survey's driver: chooses the rows of a part, runs them by worth until the time is up, writes the results.

Needs only the standard library. Rows already measured in the results folder (same device, driver and library
versions) are left out, rows that failed there come last, so a part is continued by running it again.
"""
import argparse
import atexit
import datetime
import fnmatch
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import device as dev          # noqa: E402
import results                # noqa: E402
from worker import PARTS      # noqa: E402

SECONDS = 480                 # one sitting: eight minutes, well inside a ten-minute limit per command
WORKERS = 4                   # worker processes kept at once, one per environment; each holds about 0.6 GB of host memory


class Worker:
    """A worker process with one environment; see worker.py for what it says."""

    def __init__(self, environment, stand_in, log):
        env = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", PYTORCH_NVML_BASED_CUDA_CHECK="1",
                   PYTHONDONTWRITEBYTECODE="1", **environment)
        if stand_in:
            env.update(SURVEY_STAND_IN="1", NULLCUDA_ON="1", OMP_NUM_THREADS="1",
                       LD_PRELOAD=os.path.join(stand_in, "libnullcuda.so"),
                       LD_LIBRARY_PATH=os.path.join(stand_in, "lib") + ":" + env.get("LD_LIBRARY_PATH", ""))
        r, w = os.pipe()
        self.process = subprocess.Popen([sys.executable, "-W", "ignore", os.path.join(HERE, "worker.py"), "--fd", str(w)],
                                        stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, pass_fds=[w], text=True)
        os.close(w)
        self.answers = os.fdopen(r)
        self.hello = json.loads(self.answers.readline() or "{}")

    def run(self, part, rows):
        """Yield one answer per row; an ending worker yields nothing more."""
        try:
            self.process.stdin.write(json.dumps({"part": part, "rows": rows}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return
        for line in self.answers:
            event = json.loads(line)
            if event["event"] == "end":
                return
            yield event

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.answers.close()


class Sampler(threading.Thread):
    """Clocks, temperature and power every few seconds for the whole sitting."""

    def __init__(self, nvml, every_s=5.0):
        super().__init__(daemon=True)
        self.nvml, self.every_s, self.samples, self.begun = nvml, every_s, [], time.monotonic()
        self.enough = threading.Event()

    def take(self):
        sample = {"t_s": round(time.monotonic() - self.begun, 1), **self.nvml.conditions()}
        self.samples.append(sample)
        return sample

    def run(self):
        while not self.enough.wait(self.every_s):
            self.take()


def arguments():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("part", choices=sorted(PARTS))
    a.add_argument("--commit", required=True, help="commit of the tree this runs from, written into the results")
    a.add_argument("--out", required=True, help="folder that receives the results file and the log")
    a.add_argument("--dry", action="store_true", help="everything but the numbers; needs no GPU, and no torch for its first half")
    a.add_argument("--no-torch", action="store_true", help="with --dry: only its first half")
    a.add_argument("--seconds", type=float, default=SECONDS, help="time for this sitting (default %(default)s)")
    a.add_argument("--results", default=os.path.join(HERE, "..", "results"), help="folder of committed results")
    a.add_argument("--rows", default="*", help="only rows whose name matches this pattern")
    a.add_argument("--stand-in", help="folder of a built stand-in CUDA runtime (libnullcuda.so and lib/): rehearsal, no GPU")
    a.add_argument("--list", action="store_true", help="print the rows that would run and stop")
    return a.parse_args()


def batches(rows):
    """Rows in order, neighbours that may share a process together."""
    out = []
    for r in rows:
        if r.get("share") and out and out[-1][0].get("share") == r["share"] and out[-1][0]["env"] == r["env"]:
            out[-1].append(r)
        else:
            out.append([r])
    return out


def dry_run(part, module, rows, a):
    """Check every row without a GPU; returns (passed, failed, skipped) and fills rows' errors."""
    tally = {"passed": 0, "failed": 0, "skipped": 0}
    for sentence, ok in module.checks(rows):
        tally["passed" if ok else "failed"] += 1
        print(f"{'ok  ' if ok else 'FAIL'} part {part}: {sentence}")
    try:
        if a.no_torch:
            raise ImportError("torch was left out by --no-torch")
        import torch
        import transformers  # noqa: F401
    except ImportError as e:
        print(f"skip part {part}: tensors and code paths of {len(rows)} rows: {e}")
        tally["skipped"] += 1
        return tally
    torch.set_num_threads(1)
    begun, bad, shown, notes = time.monotonic(), 0, 0, {}
    for n, row in enumerate(rows):
        if time.monotonic() - begun > a.seconds:
            print(f"skip part {part}: {len(rows) - n} rows not reached in {a.seconds:g} s")
            tally["skipped"] += 1
            break
        try:
            note = module.rehearse(row)
            notes[note] = notes.get(note, 0) + 1
        except Exception as e:
            bad += 1
            row["error"] = f"{type(e).__name__}: {e}"
            if shown < 20:
                print(f"FAIL part {part}: {row['name']}: {row['error'][:300]}")
                shown += 1
            if os.environ.get("SURVEY_TRACEBACK"):
                import traceback
                traceback.print_exc()
    else:
        n = len(rows)
    for note, times in notes.items():
        if note:
            print(f"note part {part}: {times} rows: {note}")
    tally["failed" if bad else "passed"] += 1
    print(f"{'FAIL' if bad else 'ok  '} part {part}: {n - bad} of {n} rows built without a GPU in {time.monotonic() - begun:.0f} s")
    return tally


def document(a, device, driver, libraries, conditions, rows):
    return {"schema_version": results.SCHEMA_VERSION, "commit": a.commit, "part": f"survey-{a.part}", "device": device,
            "driver": driver, "libraries": libraries, "conditions": conditions, "dry": a.dry, "rows": rows}


def result_row(row, **got):
    r = {"name": row["name"], "group": row["group"], "spec": row["spec"], "environment": row["env"],
         "predicted": row["predicted"], "measured": None, "raw_seconds": [], "compare": None, "error": None,
         "conditions": None, "wall_s": None}
    r.update(got)
    return r


def end_in_order(number, _):
    """On SIGTERM: leave through atexit, which ends the workers and removes their files; once is enough."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    module = importlib.import_module(PARTS[a.part])
    rows = [r for r in module.rows() if fnmatch.fnmatchcase(r["name"], a.rows)]
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()

    if a.dry:
        tally = dry_run(a.part, module, rows, a)
        doc = document(a, "dry", None, {}, {"host": dev.host()}, [result_row(r, error=r.get("error") or "dry run") for r in rows])
        problems = results.check(doc)
        tally["failed" if problems else "passed"] += 1
        print(f"{'FAIL' if problems else 'ok  '} part {a.part}: results file of {len(rows)} rows {problems[:3] or 'is well formed'}")
        results.write_atomic(results.path_for(a.out, [], "dry", date, a.part), doc)
        print("{passed} passed, {failed} failed, {skipped} skipped".format(**tally))
        return 1 if tally["failed"] else 0

    begun = time.monotonic()
    left_s = lambda: a.seconds - (time.monotonic() - begun)       # noqa: E731
    # rows write checkpoints and compiler caches here; a row that is killed cannot clean up after itself
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="survey-")
    atexit.register(shutil.rmtree, os.environ["TMPDIR"], ignore_errors=True)
    signal.signal(signal.SIGTERM, end_in_order)
    log = open(os.path.join(a.out, f"survey-{a.part}.log"), "a")
    nvml, workers, answers = dev.Nvml(), {}, []
    atexit.register(lambda: [w.close() for w in workers.values()])

    def worker_for(environment):
        key = json.dumps(environment, sort_keys=True)
        if key in workers and workers[key].process.poll() is not None:
            workers.pop(key).close()
        if key not in workers:
            while len(workers) >= WORKERS:
                workers.pop(next(iter(workers))).close()
            workers[key] = Worker(environment, a.stand_in, log)
        return workers[key]

    hello = worker_for({}).hello
    if not hello.get("gpu"):
        print("no GPU here (and no --stand-in given): nothing can be measured", file=sys.stderr)
        return 5
    stand_in = bool(a.stand_in)
    device, libraries = dev.device_name(hello["gpu"], stand_in), hello["libraries"]
    driver = None if stand_in else nvml.driver()
    facts = {"gpu": {k: hello[k] for k in ("gpu", "total_bytes", "free_bytes", "multiprocessors", "capability", "l2_bytes")},
             "limits": nvml.limits(), "host": dev.host(), "samples": []}
    done, failed = results.finished(a.results, device, driver, libraries)
    chosen, left_out = [], {}
    for r in rows:
        why = module.unfit(r, hello, stand_in)
        if r["name"] in done:
            left_out["already measured"] = left_out.get("already measured", 0) + 1
        elif why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            chosen.append(r)
    chosen.sort(key=lambda r: r["name"] in failed)                # stable: the order of worth stays
    for why, n in sorted(left_out.items()):
        print(f"left out: {n} rows: {why}")
    if a.list:
        print("\n".join(r["name"] for r in chosen))
        return 0
    path = results.path_for(a.out, [a.results], device, date, a.part)
    sampler = Sampler(nvml)
    sampler.take()
    sampler.start()
    facts["samples"] = sampler.samples

    def save():
        results.write_atomic(path, document(a, device, driver, libraries, facts, answers))

    by_name = {r["name"]: r for r in chosen}
    reached = 0
    for batch in batches(chosen):
        if left_s() < 10:
            break
        todo = list(batch)
        while todo and left_s() >= 10:
            worker = worker_for(todo[0]["env"])
            # a batch never runs past the sitting: cut to what should be reached, each limit to what is left
            part_of = [dict(r, limit_s=min(r["limit_s"], max(5.0, left_s() - 5))) for r in todo[:64]]
            answered = 0
            for event in worker.run(a.part, part_of):
                row = by_name[event.pop("name")]
                event.pop("event")
                cut = event["error"] and event["error"].startswith("time limit") and left_s() < 10
                if not cut:                                       # cut by the sitting's end, not by its own limit: not a failure
                    answers.append(result_row(row, **event, compare=results.compare(row["predicted"], event["measured"]),
                                              conditions=sampler.samples[-1] if row.get("share") else sampler.take()))
                    reached += 1
                answered += 1
                if answered % 8 == 0 or not row.get("share"):
                    save()
                if left_s() < 5:
                    worker.process.terminate()
                    break
            if answered == 0 and left_s() >= 10:                  # the worker itself died
                answers.append(result_row(todo[0], error="the worker process ended"))
                answered = 1
            todo = todo[answered:]
    sampler.enough.set()
    sampler.take()
    save()
    problems = results.check(document(a, device, driver, libraries, facts, answers))
    for p in problems:
        print("problem:", p)
    module.summary(answers)
    errors = [r for r in answers if r["error"]]
    for r in errors[:20]:
        print(f"error: {r['name']}: {r['error']}")
    print(f"part {a.part}: {len(answers) - len(errors)} rows measured, {len(errors)} with an error, "
          f"{len(chosen) - reached} not reached, {time.monotonic() - begun:.0f} s -> {path}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

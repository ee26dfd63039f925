#!/usr/bin/env python3
"""tests/mutate/mutate.py [--jobs N] [--only TEXT,...] [--build DIR]: do the tests notice?

Each mutant of mutants.txt is one mistake in one source. In a copy of the tree it is made, what covers it is built and run, and it is taken back. A mutant
is killed by a test that fails, dies or takes ten times as long, or by the compiler. Exit 1: a test fails without any mutant, a mutant fits no
longer, or fewer than 90 % are killed of those that are not marked as changing nothing."""
import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LEAST_SHARE = 0.9


def read_mutants(path):
    """[{file, tests, old, new, why}]"""
    out, file, tests = [], None, None
    for n, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if not line or line.startswith("# "):
            continue
        if line.startswith("@"):
            file, tests = line[1:].split(" ")
            continue
        line, _, why = line.partition(" ## ")
        old, found, new = line.partition(" => ")
        if not found:
            sys.exit("%s:%d: no ` => `" % (path, n))
        out.append({"line": n, "file": file, "tests": tests.split(","), "old": old.replace("\\n", "\n"), "new": new.replace("\\n", "\n"), "why": why})
    return out


def copy_tree(to):
    shutil.rmtree(to, ignore_errors=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode().rstrip("\0").split("\0")
    for f in files:
        os.makedirs(os.path.dirname(os.path.join(to, f)), exist_ok=True)
        if os.path.exists(os.path.join(ROOT, f)):
            shutil.copy2(os.path.join(ROOT, f), os.path.join(to, f))


class Worker:
    def __init__(self, tree):
        self.tree, self.took = tree, {}
        self.env = dict(os.environ, BUILD="build", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")

    def make(self, tests):
        """Whether what these tests need builds."""
        targets = ["all", "build/tests/solver_stand_in"] + sorted("build/tests/" + t for t in tests if not t.endswith(".sh"))  # tests run the programs too
        return subprocess.run(["make", "--no-print-directory", "NVCC=", "BUILD=build", *targets], cwd=self.tree, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def passes(self, test, limit_s):
        command = ["bash", "tests/" + test] if test.endswith(".sh") else ["build/tests/" + test]
        child = subprocess.Popen(command, cwd=self.tree, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            return child.wait(timeout=limit_s) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:  # what it started, too, also where this program is ended
            try:
                os.killpg(child.pid, 9)
            except ProcessLookupError:
                pass
            child.wait()

    def baseline(self, tests):
        """The tests that fail without any mutant; how long each takes otherwise."""
        wrong = [] if self.make(tests) else ["the build"]
        for test in sorted(tests) if not wrong else ():
            begin = time.monotonic()
            wrong += [] if self.passes(test, 600) else [test]
            self.took[test] = time.monotonic() - begin
        return wrong

    def killed_by(self, m):
        """The name of what noticed; None: it survived; "stale": it does not fit."""
        path = os.path.join(self.tree, m["file"])
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if text.count(m["old"]) != 1:
            return "stale"
        try:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace(m["old"], m["new"]))
            if not self.make(m["tests"]):
                return "the compiler"
            for test in sorted(m["tests"], key=self.took.get):
                if not self.passes(test, 20 + 10 * self.took[test]):
                    return test
            return None
        finally:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--only", default="", help="mutants of files whose path has one of these texts")
    p.add_argument("--build", default=os.path.join(ROOT, "build", "mutate"), help="folder of the copies")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    mutants = [m for m in read_mutants(os.path.join(HERE, "mutants.txt")) if any(text in m["file"] for text in args.only.split(","))]
    tests = {t for m in mutants for t in m["tests"]}
    workers = [Worker(os.path.join(args.build, "tree%d" % i)) for i in range(args.jobs)]
    copy_tree(workers[0].tree)
    wrong = workers[0].baseline(tests)
    if wrong:
        sys.exit("without any mutant: %s" % ", ".join(wrong))
    for w in workers[1:]:
        shutil.rmtree(w.tree, ignore_errors=True)
        shutil.copytree(workers[0].tree, w.tree, symlinks=True)
        w.took = workers[0].took
    todo, done, lock = queue.Queue(), [], threading.Lock()
    for m in mutants:
        todo.put(m)

    def work(w):
        while True:
            try:
                m = todo.get_nowait()
            except queue.Empty:
                return
            by = w.killed_by(m)
            with lock:
                done.append((m, by))
                print("%-9s %s (mutants.txt:%d): %s => %s%s" % ("SURVIVED" if by is None else "stale" if by == "stale" else "killed", m["file"], m["line"], m["old"].strip(), m["new"].strip(),
                                                 "  (%s)" % (by or m["why"]) if by or m["why"] else ""), flush=True)

    threads = [threading.Thread(target=work, args=(w,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stale = sum(by == "stale" for _, by in done)
    survived = [m for m, by in done if by is None]
    counted = [(m, by) for m, by in done if by != "stale" and not (by is None and m["why"])]
    killed = sum(by is not None for _, by in counted)
    print("%d mutants: %d killed, %d survived, %d of these change nothing, %d fit no longer" % (len(done), killed, len(survived), sum(bool(m["why"]) for m in survived), stale))
    sys.exit(stale > 0 or killed < LEAST_SHARE * len(counted))


if __name__ == "__main__":
    main()

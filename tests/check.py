"""tests/check.py: counts the cases of a test script that is written in Python.

    sys.path.insert(0, "tests")
    from check import finish, ok
    ok(2 + 2 == 4, "two and two", 2 + 2)
    finish()
"""
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile

# What a test finds out about a card is kept in a place of its own, and what its user keeps changes no answer.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], True)

counts = {"passed": 0, "failed": 0, "skipped": 0}


def count(passed=0, failed=0, skipped=0):
    for name, n in (("passed", passed), ("failed", failed), ("skipped", skipped)):
        counts[name] += n


def ok(good, what, said=""):
    """A case: `what` is its name, `said` what there is to see where it failed."""
    count(bool(good), not good)
    if not good:
        print("FAIL: %s: %s" % (what, said))
    return good


def caller(program):
    """call(WORD, ...) runs the program with these words: its exit code, what it printed, what it said on standard error."""
    def call(*words):
        p = subprocess.run((program,) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
        return p.returncode, p.stdout.decode(), p.stderr.decode()
    return call


def asker(program, command):
    """ask(WORD, ...) runs `program command --json` with these words: its exit code, the document ({}: it printed none), what it said on standard error."""
    def ask(*words):
        p = subprocess.run((program, command, "--json") + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
        said = p.stderr.decode("utf-8", "replace")
        try:
            return p.returncode, json.loads(p.stdout.decode("utf-8", "replace")), said
        except ValueError:
            return p.returncode, {}, said
    return ask


def skip(why):
    count(skipped=1)
    print("SKIP: %s" % why)


def finish():
    """The last line, and the exit code."""
    print(", ".join("%d %s" % (n, name) for name, n in counts.items()))
    sys.exit(counts["failed"] != 0)

#!/bin/bash
# tests/test_study.sh: vplan study, and what a tune that is interrupted says. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" <<'P'
import csv, hashlib, io, json, os, signal, sqlite3, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = sys.argv[1:3]
os.chdir(work)
env = dict(os.environ, LC_ALL="C", OMP_NUM_THREADS="1")
TUNE = [vplan, "tune", "gpt2-tiny", "--device", "cpu", "--seq", "32", "--global-batch", "2", "--budget", "5MB", "--max-trials", "1", "--study", "s.db"]


def call(*words, code=0):
    p = subprocess.run([vplan] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=300, env=env)
    ok(p.returncode == code, " ".join(words), (p.returncode, p.stderr.decode()[-300:]))
    return p.stdout.decode()


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


# ---- interrupted: the best so far, and the command that goes on ----

p = subprocess.Popen(TUNE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
said = []
for line in p.stderr:
    said.append(line.decode().rstrip("\n"))
    if " of at most " in said[-1]:
        break
p.send_signal(signal.SIGINT)
out, err = p.communicate(timeout=60)
out = out.decode()
ok(p.returncode == 6 and "interrupted" in err.decode(), "exit 6", (p.returncode, err))
ok(out.startswith("INTERRUPTED: 1 trials ran; best so far number 1, ") and "goes on where this one ended" in out, "the best so far", out)
again = " ".join(out[out.index("next       ") + 11:].replace("\\\n", " ").split()).split()
ok(again == ["vplan"] + TUNE[1:], "the same command goes on", again)
ok(any(l.startswith("  1 of at most ") and " to go; best " in l and len(l) <= 80 for l in said), "progress", said)
d = json.loads(call("study", "s.db", "--json"))
ok([t["state"] for t in d["requests"][0]["trials"]].count("done") == 1, "what ran is kept", d)

# ---- to its end, and looked at ----

tuned = json.loads(call(*(again[1:] + ["--json", "-q"])))
before = digest("s.db")
d = json.loads(call("study", "s.db", "--json"))
request = d["requests"][0]
done = {t["id"]: t for t in request["trials"] if t["state"] == "done"}
ok((request["model"], request["seq"], request["global_batch"], request["budget_bytes"], request["device"]) == ("gpt2-tiny", 32, 2, 5000000, "cpu"), "the request", request)
ok({t["id"] for t in tuned["trials"]} == set(done), "every trial", (set(done), tuned["trials"]))
for t in tuned["trials"]:
    ok((t["executed_bytes"], t["predicted_bytes"], t["verdict"]) == (done[t["id"]]["bytes"], done[t["id"]]["predicted_bytes"], done[t["id"]]["verdict"]), "trial %d" % t["id"], done[t["id"]])
raced = [t for t in done.values() if t["runs"] > 1]
ok(request["best"] == min(raced or done.values(), key=lambda t: t["measured_s"])["id"] == request["trials"][0]["id"], "the best is the fastest of those whose times are sure", request)
rows = list(csv.DictReader(io.StringIO(call("study", "s.db", "--csv"))))
ok([int(r["trial"]) for r in rows] == [t["id"] for t in request["trials"]] and all(None not in r.values() and None not in r for r in rows), "CSV has the same rows", rows)
screen = call("study", "s.db")
lines = screen.rstrip("\n").split("\n")
ok(max(map(len, lines)) <= 80 and lines[0].startswith("BEST: ") and ", number %d of %d" % (request["best"], len(request["trials"])) in lines[0], "the screen", screen)
ok(" ".join(["vplan"] + TUNE[1:]) in " ".join(screen[screen.index("next  ") + 11:].replace("\\\n", " ").split()), "the command that asked", screen)
def words(run):
    one = run["n_blocks"] == 1
    how = "in segments of %d" % run["segment"] if run["segment"] > 1 else "recompute%s %s" % ("s" * one, " + ".join(run["recompute"]) or "nothing")
    return "%d block%s %s" % (run["n_blocks"], "" if one else "s", how)


for t in request["trials"]:
    said = "micro-batch %d, loss all at once; %s" % (t["what"]["micro_batch"], "; ".join(map(words, t["what"]["blocks"])))
    ok(said in " ".join(screen.split()), "trial %d in words: %s" % (t["id"], said), screen)
ok(digest("s.db") == before and not [f for f in os.listdir(".") if f != "s.db"], "only read", os.listdir("."))
os.chmod("s.db", 0o400)
call("study", "s.db")
os.chmod("s.db", 0o600)

# ---- read while a tuner writes: it holds the study's lock, and may be inside a transaction ----

db = sqlite3.connect("s.db", isolation_level=None)
db.execute("BEGIN IMMEDIATE")
db.execute("UPDATE trial SET evidence = 'half'")
ok(json.loads(call("study", "s.db", "--json")) == d, "what is not committed is not seen", "differs")
db.execute("ROLLBACK")
db.execute("INSERT INTO command_request(id, identity, device, budget_bytes, asked, created_unix_s) VALUES(1, 'x', 't4-16gb', 1000, 'vplan tune -- a\u001bb', 0)")
db.execute("INSERT INTO command_trial VALUES(1, 1, '[\"python\", \"a b\\u001b.py\"]', 'done', 'ok', '', '{}', 5, 6, 7, 0, 0.5, 8.0, 0.0, 0.4, 0.5, 0.1, 0.1, 4, 1.0, 0, 0, 0)")
db.close()
screen = call("study", "s.db")
ok("command    on t4-16gb" in screen and "python $'a b\\x1b.py'" in screen and "tune -- a\\x1bb" in screen and "\x1b" not in screen, "a command's study, harmlessly", screen)

# ---- what is none ----

open("text", "w").write("no study\n" * 100)
for words, code in (["none.db"], 7), (["text"], 7), ([], 2), (["s.db", "--csv", "--json"], 2), (["s.db", "s.db"], 2):
    call("study", *words, code=code)
finish()
P

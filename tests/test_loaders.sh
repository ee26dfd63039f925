#!/bin/bash
# tests/test_loaders.sh: what a DataLoader's workers and batches take of host memory, as estimate and check tell it, against runs of
# transformers' Trainer (tests/golden/loaders/runs.csv, made by tests/oracles/loader.py). The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'P'
import csv, json, os, subprocess, sys, tempfile

sys.path.insert(0, "tests")
from check import finish, ok

vplan = os.path.abspath(os.path.join(sys.argv[1], "vplan"))
scratch = tempfile.mkdtemp()


def call(*words):
    p = subprocess.run((vplan,) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def estimate(row, *more):
    words = ["estimate", "qwen2.5-0.5b", "--trainer", "hf", "--json", "--micro-batch", row["batch"], "--seq", row["seq"],
             "--accumulation", row["accumulation"], "--workers", row["workers"], "--prefetch", row["prefetch"]]
    out = call(*words, *(() if row["pin"] == "1" else ("--no-pin-memory",)), *more)
    return json.loads(out[1])["loader"]


rows = list(csv.DictReader(open("tests/golden/loaders/runs.csv")))
ok(len(rows) >= 13, "rows", len(rows))
for row in rows:
    loader, name = estimate(row), "%(batch)s x %(seq)s, %(workers)s workers, %(prefetch)s each, pin %(pin)s, %(context)s" % row
    own, many = (int(row["own_low"]), int(row["own_high"])), int(row["workers"])
    ok(loader["workers_low_bytes"] <= own[0] * many and own[1] * many <= loader["workers_high_bytes"], name + ": the workers' own", (loader, own))
    if row["context"] != "fork":  # which ran on the host: what is used stays in shared memory
        continue
    # one byte of these is pinned by somebody else in every run
    ok(loader["pinned_bytes"] == int(row["pinned"]) - 1, name + ": pinned", (loader, row))
    ok(loader["shared_least_bytes"] == int(row["shared"]), name + ": shared, when all waits", (loader, row))
    ok(loader["shared_bytes"] >= loader["shared_least_bytes"], name + ": at most", loader)

# ---- two batches each unless it is said; nothing without workers ----
one = dict(rows[0], prefetch="2")
words = ("estimate", "gpt2", "--trainer", "hf", "--micro-batch", "8", "--seq", "1024")
code, out, err = call(*words, "--json")
ok("loader" not in json.loads(out), "no workers, no loader", out)
code, out, err = call(*words, "--workers", "2", "--json")
ok(json.loads(out)["loader"] == estimate(one), "prefetch is 2", out)
code, out, err = call(*words, "--workers", "2")
ok("loader     2 workers, 5 batches at once: 640.0 KiB pinned" in out, "its line", out)
for option in (("--prefetch", "2"), ("--no-pin-memory",)):
    code, out, err = call(*words, *option)
    ok(code == 2 and "--workers N" in err, "%s wants workers" % option[0], (code, err))

# ---- the same of people's files ----
path = os.path.join(scratch, "train.yaml")
BASE = "output_dir: out\nper_device_train_batch_size: 8\nbf16: true\noptim: adamw_torch_fused\n"
for more, want in (("", None), ("dataloader_num_workers: 0\n", None), ("dataloader_num_workers: 2\n", one),
                   ("dataloader_num_workers: 2\ndataloader_pin_memory: false\n", dict(one, pin="0")),
                   ("dataloader_num_workers: 4\ndataloader_prefetch_factor: 3\n", dict(one, workers="4", prefetch="3"))):
    open(path, "w").write(BASE + more)
    code, out, err = call("check", path, "--model", "gpt2", "--device", "h100", "--seq", "1024", "--json")
    have = json.loads(out).get("loader")
    ok(have == (want and estimate(want)), "check: " + (more or "nothing written"), (have, err))
path = os.path.join(scratch, "train.json")
for written, workers in (("4", 4), ("1e1", 10), ("1.5", None)):
    open(path, "w").write('{"output_dir": "out", "per_device_train_batch_size": 8, "bf16": true, "dataloader_num_workers": %s}' % written)
    have = json.loads(call("check", path, "--model", "gpt2", "--device", "h100", "--seq", "1024", "--json")[1]).get("loader")
    ok((have and have["workers"]) == workers, "workers written as " + written, have)
finish()
P

#!/bin/bash
# tests/test_cuda_run.sh: whole plans through the CUDA backend, in the emulator (tests/cuda_emulator): plans for a card train as the CPU does, whatever
# they recompute and whether a step is recorded or enqueued; a call of CUDA or of a library that fails ends the run with its reason and leaves
# nothing behind. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
plugin=$PWD/$BUILD/tests/vplan-cuda-emulated.so
case $BUILD in /*) plugin=$BUILD/tests/vplan-cuda-emulated.so ;; esac
[ -e "$plugin" ] || { echo "SKIP: $plugin is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
BUILD=$BUILD PLUGIN=$plugin WORK=$work python3 - <<'P'
import json, os, re, shutil, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

build, plugin, work = os.environ["BUILD"], os.environ["PLUGIN"], os.environ["WORK"]
card = "h200-sxm-141gb"


def call(*command, **env):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, **env), timeout=600)


def plan(name, model, *options, device=card, seq=16, batch=4):
    if not {"--precision", "--recipe"} & set(options):
        options += ("--precision", "fp32")
    path = "%s/%s.json" % (work, name)
    r = call(build + "/vplan", "plan", model, "--device", device, "--seq", str(seq), "--global-batch", str(batch), "-o", path, "--force", "--within", "0", "--json", *options)
    if r.returncode != 0:
        sys.exit("plan %s: %s" % (name, r.stderr))
    return path


def run(path, *options, backend=plugin, steps=3, **env):
    return call(build + "/vplan-run", path, "--steps", str(steps), "--json", "--hash", "--backend", backend, *options, **env)


def results(path, *options, **more):
    r = run(path, *options, **more)
    if r.returncode != 0:
        return {"error": r.stderr}
    return json.loads(r.stdout)


# ---- the same training as the CPU's ----
for model, precision, tolerance in (("gpt2-tiny", "fp32", 1e-5), ("llama-tiny", "fp32", 1e-5), ("gpt2-tiny", "bf16-mixed", 2e-2), ("llama-tiny", "bf16", 5e-2)):
    cpu = results(plan("cpu", model, "--precision", precision, device="cpu"), backend="cpu")
    gpu = results(plan("gpu", model, "--precision", precision))
    name = "%s in %s" % (model, precision)
    if "error" in cpu or "error" in gpu:
        ok(False, name, (cpu.get("error"), gpu.get("error")))
        continue
    off = max(abs(a["loss"] - b["loss"]) for a, b in zip(cpu["steps"], gpu["steps"]))
    ok(off <= tolerance, name + " has the CPU's losses", off)
    memory = gpu["memories"][0]
    ok(memory["executed_bytes"] == memory["predicted_bytes"], name + ": the arena is the predicted one", memory)
    ok(gpu["backend"] == "cuda" and len(gpu["device_memory"]) == 4, name + " says where it ran", gpu["backend"])

# ---- the same bits from every plan of a recipe ----
recipe = {"schema_version": 1, "optimizer": {"name": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}, "clip_norm": 1.0,
          "schedule": {"type": "constant", "warmup_steps": 0, "total_steps": 0, "min_lr_ratio": 0.0}, "seed": 1, "precision": "bf16", "dropout": 0.1,
          "data": {"kind": "tokens-u16", "order": "sequential"}}
with open(work + "/recipe.json", "w") as f:
    json.dump(recipe, f)
sums = {}
for recompute in ("none", "attention", "mlp", "full"):
    path = plan(recompute, "gpt2-tiny", "--recipe", work + "/recipe.json", "--recompute", recompute, "--micro-batch", "2", "--loss", "full")
    for how in ((), ("--eager",)):
        r = results(path, *how, steps=4)
        sums[recompute + " eager" * len(how)] = r.get("parameters_sha256", r.get("error"))
ok(len(set(sums.values())) == 1, "recompute and recording move no bit, with dropout and stochastic rounding", sums)

# ---- updates that the host makes are the card's, bit for bit ----
for precision, optimizer in (("bf16", "adamw"), ("bf16-mixed", "adamw"), ("fp32", "adamw-8bit"), ("bf16", "lion"), ("bf16-mixed", "sgd-momentum")):
    sums, host = {}, 0
    options = ("--precision", precision, "--optimizer", optimizer, "--micro-batch", "2", "--loss", "full", "--recompute", "none")
    for offload in ("none", "optimizer", "host-step", "params+host-step"):
        path = plan("host", "gpt2-tiny", *options, *(("--host-memory", "1GiB", "--offload", offload) if offload != "none" else ()))
        for how, env in (((), {}), (("--eager",), {}), ((), {"VPLAN_EMULATOR_STREAMS": "7", "VPLAN_EMULATOR_DEFER": "1"})):
            r = results(path, *how, steps=4, **env)
            sums[offload, how, bool(env)] = r.get("parameters_sha256", r.get("error"))
        memory = {m["name"]: m for m in r.get("memories", ())}
        ok(all(m["executed_bytes"] == m["predicted_bytes"] for m in memory.values()), "arenas of --offload " + offload, memory)
        host += "host-pinned" in memory
    ok(len(set(sums.values())) == 1 and host == 3, "%s, %s: where an update is made moves no bit" % (precision, optimizer), (sums, host))

# ---- updates in backward are those at the end, bit for bit, and their gradients lie in one place ----
for precision, optimizer in (("bf16", "adamw"), ("bf16-mixed", "adamw"), ("fp32", "lion"), ("bf16-mixed", "adamw-8bit")):
    recipe = work + "/unclipped.json"
    with open(recipe, "w") as f:
        json.dump({"schema_version": 1, "optimizer": {"name": optimizer}, "clip_norm": 0, "precision": precision}, f)
    sums, bytes_of, norms = {}, {}, {}
    for updates in ("end", "backward"):
        path = plan("updates", "gpt2-tiny", "--recipe", recipe, "--micro-batch", "4", "--loss", "full", "--recompute", "none", "--updates", updates)
        for how, env in (((), {}), (("--eager",), {}), ((), {"VPLAN_EMULATOR_STREAMS": "7", "VPLAN_EMULATOR_DEFER": "1"})):
            r = results(path, *how, steps=4, **env)
            sums[updates, how, bool(env)] = r.get("parameters_sha256", r.get("error"))
        memory = r.get("memories", [{}])[0]
        ok(memory.get("executed_bytes") == memory.get("predicted_bytes"), "the arena with --updates " + updates, memory)
        bytes_of[updates], norms[updates] = memory.get("predicted_bytes", 0), [s["grad_norm"] for s in r.get("steps", ())]
    ok(len(set(sums.values())) == 1, "%s, %s: when an update is made moves no bit" % (precision, optimizer), sums)
    ok(bytes_of["backward"] < bytes_of["end"], "and needs fewer bytes", bytes_of)
    for n in ("4", "2"):
        host = {}
        for updates in ("end", "backward"):
            path = plan("updates", "gpt2-tiny", "--recipe", recipe, "--micro-batch", n, "--loss", "full", "--recompute", "none", "--updates", updates, "--host-memory", "1GiB", "--offload", "host-step")
            ok(json.load(open(path)).get("updates_in_backward", False) == (updates == "backward"), "the host's updates are made " + updates)
            for how, env in (((), {}), (("--eager",), {}), ((), {"VPLAN_EMULATOR_STREAMS": "7", "VPLAN_EMULATOR_DEFER": "1"}), ((), {"VPLAN_EMULATOR_STREAMS": "3"})):
                r = results(path, *how, steps=4, **env)
                host[updates, how, str(env)] = r.get("parameters_sha256", r.get("error"))
        ok(len(set(host.values())) == 1 and (n == "2" or set(host.values()) == set(sums.values())), "%s, %s: nor does it where the host makes it, in micro-batches of %s" % (precision, optimizer, n), host)
    ok(len(norms["end"]) == 4 and all(abs(a / b - 1) < 1e-12 for a, b in zip(norms["end"], norms["backward"])), "and the norm is the same", norms)

# ---- the optimizer's calls of a step are few launches ----
for name, sizes in (("deep", {"n_layer": 12, "n_embd": 16}), ("wide", {"n_layer": 2, "n_embd": 96})):
    with open("%s/%s.json" % (work, name), "w") as f:
        json.dump({"model_type": "gpt2", "n_head": 2, "n_positions": 64, "vocab_size": 64, **sizes}, f)
for model, precision in (("gpt2-tiny", "fp32"), ("gpt2-tiny", "bf16"), (work + "/deep.json", "bf16"), (work + "/wide.json", "bf16")):
    path = plan("updates", model, "--precision", precision)
    document = json.load(open(path))
    bucket = document["buckets"][0]
    programs = [bucket["programs"][i["program"]] for i in bucket["instances"]]
    n = sum(len([s for s in p["update"] if s["kernel"] == "adamw"]) for p in programs)
    pieces = [-(-s["count"] // 16384) for p in programs for s in p["norm"] if s["kernel"] == "grad_sumsq"]
    large = sum(k > 1 for k in pieces)
    ok(len(pieces) == n and (large > 0) == ("wide" in model), "the gradients of %s" % model, (n, large))
    # Waited for one by one: squares of each, and what adds up its pieces. Else 60 parameters a launch, and 120 gradients: squares, what adds up
    # the pieces of each, what adds up all.
    groups = -(-n // 120)
    for how, updates, want in ((("--eager",), n, (n, large)), ((), -(-n // 60), (2 * groups, groups if large else 0))):
        log = "%s/launches of %s in %s%s" % (work, os.path.basename(model), precision, how)
        r = run(path, *how, steps=1, VPLAN_EMULATOR_LOG=log)
        lines = [line for line in open(log) if " cudaLaunchKernel(" in line]
        launches = [line.split()[0] for line in lines if "update_spans" in line]
        ok(r.returncode == 0 and n > 0 and len(launches) == updates, "%d parameters in %s, %s" % (n, precision, how), (updates, len(launches), r.stderr))
        norm = [[line.split()[0] for line in lines if "(" + kernel in line] for kernel in ("squares_kernel", "pieces_kernel")]
        ok(tuple(map(len, norm)) == want, "%d gradients in %s, %s" % (n, precision, how), (want, norm))
        for kernel, failing in [("adamw", launches[-1])] + [("grad_sumsq", of[-1]) for of in norm if of]:
            r = run(path, *how, steps=2, VPLAN_EMULATOR_FAIL=failing)
            ok(r.returncode == 5 and kernel in r.stderr, "launch %s, which fails, is %s's, %s" % (failing, kernel, how), (r.returncode, r.stderr))

# ---- one block of pinned memory, made before the first step, and a step is one replay, copies included ----
for model, inputs, steps in (("gpt2-tiny", 2, 5), (os.path.abspath("tests/golden/bert_sequence"), 4, 4)):
    path = plan("pinned", model)
    document = json.load(open(path))
    fixed = [f for f in document["fixed"] if f["component"] == "batch_input"]
    n_micro = document["buckets"][0]["n_micro_steps"]
    want = 256 + sum(-(-f["bytes"] * n_micro // 256) * 256 for f in fixed)   # the control block, and each input, at a multiple of 256
    log = "%s/pinned of %d" % (work, inputs)
    r = run(path, steps=steps, VPLAN_EMULATOR_LOG=log, VPLAN_EMULATOR_LEAKS="1")
    ok(r.returncode == 0 and "left:" not in r.stderr and len(fixed) == inputs, "%d inputs" % inputs, (r.returncode, r.stderr[-600:], fixed))
    calls = [line.split(" ", 1)[1].strip() for line in open(log)]
    pinned = [i for i, c in enumerate(calls) if c.startswith(("cudaHostAlloc", "cudaMallocHost"))]
    kernels = [i for i, c in enumerate(calls) if c.startswith("cudaLaunchKernel")]
    made = [i for i, c in enumerate(calls) if c.startswith("cudaMalloc(")]
    ok([calls[i] for i in pinned] == ["cudaHostAlloc(%d, 0)" % want] and pinned[0] < kernels[0] and made[-1] < kernels[0], "one pinned block of %d bytes" % want, pinned)
    ok(r.returncode == 0 and json.loads(r.stdout)["memories"][0]["pinned_bytes"] == want and json.loads(r.stdout)["timing"]["pinning_s"] > 0, "which the run tells", r.stdout[:300])
    replays = [i for i, c in enumerate(calls) if c.startswith("cudaGraphLaunch")]
    between = [calls[a + 1:b] for a, b in zip(replays, replays[1:])]
    ok(len(replays) == steps - 1 and all([c.split("(")[0] for c in b if "MemGetInfo" not in c] == ["cudaStreamSynchronize"] for b in between), "a step is one replay", between)
    copies = [c for c in calls[pinned[0]:replays[0]] if c.startswith("cudaMemcpyAsync(") and c.endswith(", 2)")]
    ok(len(copies) == 2, "the control block comes back, once enqueued and once recorded", copies)
    sums = {}
    for how in ((), ("--eager",)):
        for late in ({}, {"VPLAN_EMULATOR_DEFER": "1"}, {"VPLAN_EMULATOR_PROTECT": "1", "VPLAN_EMULATOR_DEFER": "1"}):
            r = results(path, *how, steps=steps, **late)
            sums[str((how, late))] = r.get("parameters_sha256", r.get("error"))
    ok(len(set(sums.values())) == 1, "copies that are late find what they are to copy", sums)
    r = run(path, VPLAN_EMULATOR_FAIL="cudaHostAlloc:1", VPLAN_EMULATOR_LEAKS="1")
    ok(r.returncode == 5 and "pinned memory" in r.stderr and "left:" not in r.stderr, "a block that fails is exit 5", (r.returncode, r.stderr))
    for room, code in ((want, 0), (want - 1, 5)):
        r = run(path, VPLAN_EMULATOR_PINNED=str(room), VPLAN_EMULATOR_LEAKS="1")
        ok(r.returncode == code and ("vplan-run: the host gives no {:,} B of pinned memory".format(want) in r.stderr) == (code == 5) and "left:" not in r.stderr,
           "%d bytes can be pinned" % room, (r.returncode, r.stderr))

# ---- what does not belong together ----
for device, sm in (("rtx-4090-24gb", "8.9"), ("cpu", "")):
    try:
        path = plan("other", "gpt2-tiny", device=device)
    except SystemExit as e:
        ok(False, device, e)
        continue
    r = run(path)
    ok(r.returncode == 5 and sm in r.stderr and "plan is for" in r.stderr, "a plan for %s is refused" % device, (r.returncode, r.stderr))
path = plan("tiny", "gpt2-tiny")
r = run(path, backend="cpu")
ok(r.returncode == 5 and "the backend is the CPU" in r.stderr, "a card's plan is refused by the CPU", (r.returncode, r.stderr))
r = run(path, "--verify")
ok(r.returncode == 2 and "--verify" in r.stderr, "--verify is for the CPU", (r.returncode, r.stderr))
r = run(path, backend=work + "/nowhere.so")
ok(r.returncode == 5 and "is not there" in r.stderr, "a plugin that is not there", (r.returncode, r.stderr))
r = run(path, backend=os.path.abspath(build + "/null/libvplan-null.so"))
ok(r.returncode == 5 and "is not a backend" in r.stderr, "a library that is no plugin", (r.returncode, r.stderr))

# ---- timed calls: an algorithm for every product, in the profile and in the plan ----
document = json.load(open(path))
rows = []
for program in document["buckets"][0]["programs"]:
    for step in program["forward"] + program["backward"]:
        if step["kernel"].startswith("linear"):
            rows.append({"kernel": step["kernel"], **{k: step[k] for k in ("rows", "in", "out", "layout")}, "seconds": 0})
with open(work + "/request.json", "w") as f:
    json.dump({"schema_version": 1, "device": card, "backend": "", "rows": rows}, f)
r = call(build + "/vplan-run", "--profile", work + "/request.json", "--backend", plugin)
ok(r.returncode == 0, "products are timed", r.stderr)
if r.returncode == 0:
    profile = json.loads(r.stdout)
    ok(all(re.fullmatch("[0-9a-f]{128}", row.get("algorithm", "")) for row in profile["rows"]), "each has an algorithm", profile["rows"][:2])
    with open(work + "/profile.json", "w") as f:
        json.dump(profile, f)
    path = plan("timed", "gpt2-tiny", "--profile", work + "/profile.json", "--micro-batch", str(document["buckets"][0]["micro_batch"]))
    timed = json.load(open(path))
    steps = [s for p in timed["buckets"][0]["programs"] for s in p["forward"] + p["backward"] if s["kernel"].startswith("linear")]
    ok(timed["algorithms_of"] == profile["backend"] and any("algorithm" in s for s in steps), "the plan carries them", timed.get("algorithms_of"))
    a, b = results(path), results(plan("untimed", "gpt2-tiny"))
    ok("error" not in a and abs(a["steps"][-1]["loss"] - b["steps"][-1]["loss"]) < 1e-4, "and runs with them", a.get("error"))

r = call(build + "/vplan-run", "--profile", work + "/request.json", "--backend", plugin, VPLAN_EMULATOR_FAIL="cublasLtMatmul:1")
ok(r.returncode == 0 and len(json.loads(r.stdout)["rows"]) == len(rows) and "1 of the library's algorithms failed here and were left out, first: " in r.stderr,
   "an algorithm that fails at launch is left out, and said", (r.returncode, r.stderr[-300:]))

# calls as a step makes them: recorded, on operands that are not in the cache, updates together
with open(work + "/update.json", "w") as f:
    json.dump({"schema_version": 1, "device": card, "backend": "", "rows": [{"kernel": "adamw", "count": 1000, "decay": 1, "state": 0, "seconds": 0}]}, f)
r = call(build + "/vplan-run", "--profile", work + "/update.json", "--backend", plugin, VPLAN_EMULATOR_LOG=work + "/log")
with open(work + "/log") as f:
    log = f.read()
n = {name: len(re.findall(r"^\d+ " + name + r"\(", log, re.M)) for name in ("cudaMalloc", "cudaGraphLaunch", "cudaLaunchKernel")}
ok(r.returncode == 0 and n["cudaMalloc"] >= 4 * 8 and n["cudaGraphLaunch"] >= 6 and n["cudaLaunchKernel"] < 8 * n["cudaGraphLaunch"],
   "small updates are timed in recordings, several in a launch, on operands in turn", (n, r.stderr[-300:]))

# ---- bytes outside the arena: assumed, measured, then predicted to the byte ----
CONTEXT, HANDLE, MODULE, GRAPH = 300000001, 8000003, 70001, 1000003
h200 = {"VPLAN_EMULATOR_DEVICE": "NVIDIA H200", "VPLAN_EMULATOR_OUTSIDE": "%d,%d,%d,0" % (CONTEXT, HANDLE, MODULE)}
not_ints = {"kernel", "name", "args", "workspace", "workspace_bytes", "accumulate", "first_only", "window_of_instance", "rng_id", "seconds", "algorithm"}


def request_of(path, name):
    """Every call of a plan, to be timed."""
    rows = {}
    for program in json.load(open(path))["buckets"][0]["programs"]:
        for step in program["forward"] + program["backward"] + program["norm"] + program["update"]:
            row = {"kernel": step["kernel"], **{k: v for k, v in step.items() if k not in not_ints and not isinstance(v, float)}, "seconds": 0}
            rows[json.dumps(row)] = row
    with open(work + "/" + name, "w") as f:
        json.dump({"schema_version": 1, "device": card, "backend": "", "rows": list(rows.values())}, f)
    return work + "/" + name


def profile_of(request, name, **env):
    r = call(build + "/vplan-run", "--profile", request, "--backend", plugin, **env)
    with open(work + "/" + name, "w") as f:
        f.write(r.stdout)
    return (json.loads(r.stdout) if r.returncode == 0 else {}), r.stderr


def loaded_kernels(path, **env):
    """A run's results, and how many names its kernels have, from the emulator's log; a template's instances have one."""
    log = work + "/launches"
    r = results(path, VPLAN_EMULATOR_LOG=log, **env)
    names = {re.match(r"\d+ cudaLaunchKernel\((\S+),", line).group(1) for line in open(log) if " cudaLaunchKernel(" in line}
    os.remove(log)
    return r, len(names)


path = plan("outside", "gpt2-tiny")
prediction = json.load(open(path))["prediction"]
ok(prediction["outside_bytes"] == 512 << 20 and prediction["outside_class"] == "assumed", "without a profile 512 MiB are assumed", prediction)
first, n_kernels = loaded_kernels(path, **h200)
points, said = first["outside"]["points"], first["outside"]
ok(points["context"] == points["arena"] == CONTEXT + HANDLE, "the context and the library's handle, before and beside the arena", said)
n_modules, rest = divmod(said["bytes"] - CONTEXT - HANDLE, MODULE)
ok(points["first step"] == points["last step"] == said["bytes"] and rest == 0 and n_modules >= n_kernels > 10, "and a module for each kernel", (n_kernels, said))
used = first["device_memory"][-1]["used_bytes"]
ok(used == first["outside_measured_bytes"] + first["memories"][0]["executed_bytes"], "with the arena's rounding that is all the process uses", used)
with_graph = results(path, **dict(h200, VPLAN_EMULATOR_OUTSIDE="%d,%d,%d,%d" % (CONTEXT, HANDLE, MODULE, GRAPH)))["outside"]
ok(with_graph["bytes"] == said["bytes"] + GRAPH and with_graph["points"]["first step"] == said["bytes"], "a recorded step is there from the second on", with_graph)

peak = prediction["peak_bytes"]
small = dict(h200, VPLAN_EMULATOR_OUTSIDE="100000000,0,0,0")
r = run(path, VPLAN_EMULATOR_MEMORY=str(100000000 + peak + 300000000), **small)
ok(r.returncode == 5 and "context and libraries 416.6 MiB more than now, and the device has" in r.stderr, "no arena where what comes beside it has no room", (r.returncode, r.stderr))
r = run(path, VPLAN_EMULATOR_MEMORY=str((512 << 20) + (-(-peak // (2 << 20)) * (2 << 20))), **small)
ok(r.returncode == 0, "the arena, and room for the rest", r.stderr)

container = results(path, VPLAN_EMULATOR_NVML="device", VPLAN_EMULATOR_OTHERS="5000000", **h200)["outside"]
ok(container == dict(said, measured_by="device"), "where processes are hidden, by what the device has in use more than before", container)
for others in ("5000000,5000001", "5000000,4999999"):
    r = results(path, VPLAN_EMULATOR_NVML="device", VPLAN_EMULATOR_OTHERS=others, **h200)
    ok(r["outside"] is None and r["outside_measured_bytes"] is None, "not while others come and go: " + others, r["outside"])
r = results(path, VPLAN_EMULATOR_OTHERS="5000000,6000000", **h200)["outside"]
ok(r == said, "which the driver's count of a process does not mind", r)
r = results(path, VPLAN_EMULATOR_NVML="none", **h200)["outside"]
ok(r is None, "not where the driver tells nothing", r)

request = request_of(path, "outside_request.json")
profile, stderr = profile_of(request, "outside.json", **h200)
ok(profile.get("outside", {}).get("bytes") == said["bytes"] and profile["outside"]["device"] == "NVIDIA H200", "timed calls load the same", (profile.get("outside"), stderr))
link = profile.get("link", {})
rates = [link.get(way + "_bytes_per_s", 0) for way in ("to_device", "from_device", "together")]
ok(link.get("device") == "NVIDIA H200" and min(rates) > 0 and link["pinned_bytes"] == 64 << 20 and link["pinning_s"] >= 0, "the link's rates, each way and both", link)
none, stderr = profile_of(request, "unpinned.json", VPLAN_EMULATOR_PINNED=str(1 << 20), **h200)
ok("link" not in none and none.get("rows") and "link to the host: not measured: the host gives no 64.0 MiB" in stderr, "a host that pins nothing has none", stderr)
ok("580.65.06" in profile.get("backend", ""), "the driver's version stands beside it", profile.get("backend"))
path = plan("outside_measured", "gpt2-tiny", "--profile", work + "/outside.json")
prediction = json.load(open(path))["prediction"]
ok(prediction["outside_class"] == "measured" and prediction["outside_of"] == profile.get("backend"), "the plan says with what it was measured", prediction)
r = results(path, **h200)
ok(prediction["peak_bytes"] + prediction["outside_bytes"] == r["device_memory"][-1]["used_bytes"], "the process uses what was predicted, to the byte", (prediction, r["device_memory"]))
need = prediction["peak_bytes"] + prediction["outside_bytes"]
for budget, fits in ((need, True), (need - 1, False)):
    r = call(build + "/vplan", "plan", "gpt2-tiny", "--device", card, "--precision", "fp32", "--seq", "16", "--global-batch", "4", "--profile", work + "/outside.json", "--budget", str(budget), "--within", "0", "--json")
    got = json.loads(r.stdout).get("device_bytes")
    ok((got == need) == fits and (got is None or got <= budget), "a budget of %d bytes" % budget, (r.returncode, got))
for command in ("explain", "plan"):
    words = [path] if command == "explain" else ["gpt2-tiny", "--device", card, "--precision", "fp32", "--seq", "16", "--global-batch", "4", "--profile", work + "/outside.json"]
    r = call(build + "/vplan", command, *words)
    ok("measured: NVIDIA H200, compute capability 9.0, CUDA 13.0 on driver 580.65.06" in " ".join(r.stdout.split()) and "not measured" not in r.stdout, command + " says so", r.stdout[:600])
r = call(build + "/vplan-run", path, "--steps", "2", "--backend", plugin, **h200)
ok("(measured)" in r.stdout and ": 0 bytes off" in r.stdout.split("outside", 1)[1], "and the run beside it", r.stdout)
r = call(build + "/vplan-run", path, "--steps", "2", "--backend", plugin, VPLAN_EMULATOR_DRIVER_BUILD="590.1", **h200)
ok("(measured elsewhere)" in r.stdout, "with another driver it was measured elsewhere", r.stdout)

profile_of(request, "other.json", **dict(h200, VPLAN_EMULATOR_DEVICE="NVIDIA L4"))
other = json.load(open(plan("outside_other", "gpt2-tiny", "--profile", work + "/other.json")))
ok(other["prediction"]["outside_bytes"] == 512 << 20 and any("another device, NVIDIA L4" in a for a in other["assumptions"]), "another card's figure is not this one's",
   other["assumptions"])
profile, stderr = profile_of(request, "drift.json", VPLAN_EMULATOR_NVML="device", VPLAN_EMULATOR_OTHERS="5,6", **h200)
ok("outside" not in profile and "other processes" in stderr, "a profile lacks what others made uncertain, and says why", stderr[-300:])
profile, stderr = profile_of(request, "container.json", VPLAN_EMULATOR_NVML="device", **h200)
ok(profile.get("outside", {}).get("measured_by") == "device" and profile["outside"]["bytes"] == said["bytes"], "a profile made in a container", profile.get("outside"))

# Tune, with the emulated plugin in the place of the real one: its trials know what a recorded step takes, which timed calls do not.
os.mkdir(work + "/programs")
for program in ("vplan", "vplan-run", "vplan-solve"):
    shutil.copy(build + "/" + program, work + "/programs")
shutil.copy(plugin, work + "/programs/vplan-cuda.so")
tuned = dict(h200, VPLAN_EMULATOR_OUTSIDE="%d,%d,0,%d" % (CONTEXT, HANDLE, GRAPH))
words = ("tune", "gpt2-tiny", "--device", card, "--precision", "fp32", "--seq", "8", "--global-batch", "1", "--max-trials", "1", "--study", work + "/study.db", "-o", work + "/tuned.json", "--force")
r = call(work + "/programs/vplan", *words, **tuned)
ok(r.returncode == 0 and "outside the arena: " in r.stderr, "tune measures outside the arena", r.stderr[-600:])
if r.returncode == 0:
    prediction = json.load(open(work + "/tuned.json"))["prediction"]
    r = results(work + "/tuned.json", **tuned)
    ok(prediction["outside_class"] == "measured" and r["outside_measured_bytes"] == prediction["outside_bytes"] and r["outside"]["bytes"] == CONTEXT + HANDLE + GRAPH,
       "and its plan predicts a recorded step too, to the byte", (prediction, r.get("outside")))
    r = call(work + "/programs/vplan", *words, **dict(tuned, VPLAN_EMULATOR_DRIVER_BUILD="590.1"))
    ok(r.returncode == 0 and "of the study" not in r.stderr and "driver 590.1" in json.load(open(work + "/tuned.json"))["prediction"]["outside_of"],
       "with another driver nothing of the study counts", r.stderr[-600:])

# ---- each call of CUDA and of the libraries fails once ----
path = plan("small", "llama-tiny", "--precision", "bf16", "--recompute", "none", seq=8, batch=1)
r = run(path, VPLAN_EMULATOR_LOG=work + "/calls", VPLAN_EMULATOR_LEAKS="1")
ok(r.returncode == 0 and "left:" not in r.stderr, "a run leaves nothing behind", r.stderr[-500:])
calls = {int(n): name for n, name in re.findall(r"^(\d+) (\w+)\(", open(work + "/calls").read(), re.M)}
ok(len(calls) > 50 and "cudaMalloc" in calls.values(), "its calls are known", len(calls))
bad = []
for n, name in calls.items():
    r = run(path, VPLAN_EMULATOR_FAIL=str(n), VPLAN_EMULATOR_LEAKS="1")
    gives_back = re.search(r"Free|Destroy", name)   # what it was to give back is left, and the run is none the worse for it
    good = r.returncode == 0 if gives_back else r.returncode == 0 or r.returncode == 5 and "vplan-run: " in r.stderr
    if not good or not gives_back and "left:" in r.stderr:
        bad.append((n, name, r.returncode, r.stderr[-300:]))
ok(not bad, "each of %d calls fails once, and nothing is left behind" % len(calls), (len(bad), bad[:5]))
finish()
P

#!/bin/bash
# tests/test_adversary.sh: random requests, planned freely, beside the same with pins, within less memory, and their frontiers: none is faster than the free
# plan by more than its gap, none needs less than the least budget, and the least budget fits. ADVERSARY="SEED COUNT" asks for others; 1,000 take hours. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "$(realpath "${BUILD:-build}")" ${ADVERSARY:-1 8} <<'P'
import json, random, subprocess, sys, tempfile

sys.path.insert(0, "tests")
from check import finish, ok

vplan, rnd, count = sys.argv[1] + "/vplan", random.Random(int(sys.argv[2])), int(sys.argv[3])
MODELS = ["gpt2", "gpt2-tiny", "smollm2-135m", "qwen2.5-0.5b", "llama-3.2-1b", "gpt2-medium"]
DEVICES = ["h100", "4090", "t4", "a100-sxm-80gb"]


def plan(words):
    """None: refused, as more than the device has."""
    r = subprocess.run([vplan, "plan", *words, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    answer = json.loads(r.stdout) if r.stdout else {}
    return answer if "proof" in answer else None


def seconds(answer):
    return answer["best_step_time_s"] if answer else None


def compare(free, step_s, what):
    bound_s = seconds(free) * (1 - max(0, free["proof"]["gap"] or 0))
    ok(step_s is None or step_s >= bound_s - 1e-12, "no faster than %s s: %s" % (bound_s, what), step_s)


adapters = random.Random(int(sys.argv[2]) + 1) # of its own: the other draws stay what they were
little = random.Random(int(sys.argv[2]) + 2)
n_free = n_frontier = n_adapted = 0
while n_free < count:
    batch = rnd.choice([1, 2, 3, 4, 6, 7, 8, 12, 16, 31, 48, 64])
    words = [rnd.choice(MODELS), "--device", rnd.choice(DEVICES), "--seq", str(rnd.choice([64, 128, 256, 512, 700, 1024])), "--global-batch", str(batch)]
    words += ["--optimizer", "any"] * (rnd.random() < 0.3)
    words += ["--host-memory", rnd.choice(["1GiB", "8GiB", "200GiB"])] * (rnd.random() < 0.5)
    if "--host-memory" in words and little.random() < 0.3:
        words += ["--pinned-memory", little.choice(["256MiB", "1GiB", "4GiB"])]
    if adapters.random() < 0.3:
        words += ["--lora", "r=%d,targets=all-linear%s" % (adapters.choice([1, 8, 64]), adapters.choice(["", ",dropout=0.1"]))]
    low = plan(words + ["--budget", "1MiB"])
    if not low or seconds(low) is not None:   # refused, or so small that it fits
        continue
    least = low["proof"]["least_budget_bytes"]
    budget = int(least * rnd.choice([1, 1.01, 1.1, 1.5, 2, 3]))
    free = plan(words + ["--budget", "%dB" % budget, "--frontier"])
    if not free:
        continue
    n_free += 1
    n_adapted += "--lora" in words
    what = " ".join(words + ["--budget", "%dB" % budget])
    ok(seconds(free) is not None and free["proof"]["least_budget_bytes"] == least, "the least budget fits: " + what, free["proof"])
    for point in free.get("frontier", []):
        if point["budget_bytes"] <= budget:
            n_frontier += 1
            compare(free, point["step_time_s"], what + ", frontier at %d" % point["budget_bytes"])
    micro = rnd.choice([d for d in range(1, batch + 1) if batch % d == 0])
    kinds = [["--offload", rnd.choice(["none", "optimizer", "params", "activations", "params+activations"])]] * ("--host-memory" in words)
    for pin in (*kinds, ["--micro-batch", str(micro)], ["--recompute", rnd.choice(["none", "full", "attention", "mlp"])], ["--loss", "full"]):
        pinned = plan(words + ["--budget", "%dB" % budget, *pin])
        compare(free, seconds(pinned), what + " " + " ".join(pin))
        ok(not pinned or (pinned["proof"]["least_budget_bytes"] or least) >= least, "nor the least: " + what + " " + " ".join(pin), pinned and pinned["proof"])
    less = least + int((budget - least) * rnd.random())
    compare(free, seconds(plan(words + ["--budget", "%dB" % less])), what + ", in %d" % less)
# blocks that recompute an MLP and move of the rest what a choice among all outputs would not: 0.3 % slower without
small = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=1, head_dim=16, num_hidden_layers=3,
             vocab_size=4096, max_position_embeddings=4096, rms_norm_eps=1e-5, tie_word_embeddings=True, hidden_act="silu", attention_bias=False, mlp_bias=False, rope_theta=500000.0)
with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/config.json", "w") as f:
        json.dump(small, f)
    words = [folder + "/config.json"] + "--device cpu --seq 512 --global-batch 4 --host-memory 8GiB --within 0 --budget 8622310B".split()
    free = plan(words)
    pinned = plan(words + ["--recompute", "mlp"])
    ok(free and pinned and seconds(pinned), "both fit")
    compare(free, seconds(pinned), "a small llama's --recompute mlp")
# few blocks, of which each is a large share: prices of bytes say little, chains are soon gone through; chunks between those tried left a gap of 30 %
small = dict(model_type="opt", architectures=["OPTForCausalLM"], hidden_size=256, ffn_dim=1024, num_hidden_layers=3, num_attention_heads=4, vocab_size=256, max_position_embeddings=4096,
             word_embed_proj_dim=256, do_layer_norm_before=True, activation_function="relu")
with tempfile.TemporaryDirectory() as folder:
    card = json.loads(subprocess.run([vplan, "devices", "a100-sxm-80gb", "--json"], stdout=subprocess.PIPE, text=True).stdout)["devices"][0]
    card = {k: v for k, v in dict(card, name="changed", alias=None, outside_bytes=None, host_link_bytes_per_s=1.77e11, sources=None).items() if v is not None}
    for name, document in (("config", small), ("card", card)):
        with open("%s/%s.json" % (folder, name), "w") as f:
            json.dump(document, f)
    base = "%s/config.json --device %s/card.json --seq 512 --global-batch 64 --optimizer muon --precision bf16 --host-memory 8GiB" % (folder, folder)
    least = plan((base + " --budget 1MiB").split())["proof"]["least_budget_bytes"]
    proof = plan((base + " --budget %dB" % (2 * least)).split())["proof"]
    ok(proof["status"] == "optimal" and proof["gap"] <= 1e-5, "three blocks beside host memory are proved optimal", proof)
# so little host memory that nothing goes there, and so many settings that chunks double with offload
words = "pythia-70m --device 4090 --seq 128 --global-batch 24 --optimizer any --precision bf16-mixed --budget 1542272793B --host-memory 2MiB".split()
compare(plan(words), seconds(plan(words + ["--offload", "none"])), "host memory that is of no use")
# adapters without dropout, whose backward reads what they were given: it was taken not to, and full recompute was not in the space
words = "gpt2 --device 4090 --seq 1024 --global-batch 4 --lora r=16,targets=all-linear --within 0 --budget 888519680B".split()
free, pinned = plan(words), plan(words + ["--recompute", "full"])
ok(free and pinned and seconds(free) and seconds(pinned) and free["proof"]["least_budget_bytes"] <= pinned["proof"]["least_budget_bytes"], "adapters fit", free and free["proof"])
compare(free, seconds(pinned), "adapters with --recompute full")
# an adapter's columns beside an output projection, all that full recompute makes again of it: 2 KiB a block less than any other set kept;
# and segments, which do not stand beside blocks' parameters in host memory: single blocks were planned there
words = "pythia-70m --device a100-sxm-80gb --seq 512 --global-batch 16 --precision tf32 --attention math --lora r=1,targets=all-linear --host-memory 200GiB --within 0".split()
free, full, segments = [plan(words + ["--budget", "1MiB", *pin])["proof"]["least_budget_bytes"] for pin in ([], ["--recompute", "full"], ["--recompute", "segments:2"])]
ok(free <= full, "adapters' least with --recompute full", (free, full))
halves = plan(words + ["--budget", "%dB" % segments, "--recompute", "segments:2"])
ok([(b["n_blocks"], b["segment"]) for b in halves["decisions"]["blocks"]] == [(6, 3)], "segments:2 of 6 blocks is two of three", halves["decisions"])
ok(n_frontier >= count, "frontiers were looked at", n_frontier)
ok(n_adapted > 0, "and adapters", n_adapted)
finish()
P

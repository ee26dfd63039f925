#!/bin/bash
# tests/test_hard_cases.sh: what estimators of training memory get wrong, case by case, each with bytes worked by hand. Symbols: h hidden, a heads,
# k key and value heads, d head size, f intermediate, V vocabulary, B batch, S sequence, N = B S tokens. Sizes are chosen so that no block has an
# unsplit rest. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'E'
import json, os, re, subprocess, sys, tempfile

sys.path[:0] = ["tests"]
from check import finish, ok

vplan, scratch = os.path.join(sys.argv[1], "vplan"), tempfile.mkdtemp()
MIB, GIB = 1 << 20, 1 << 30


def estimate(config, *options, trainer="torch"):
    path = os.path.join(scratch, "config.json")
    json.dump(config, open(path, "w"))
    p = subprocess.run([vplan, "estimate", path, "--trainer", trainer, "--json", *map(str, options)], stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL)
    return dict(json.loads(p.stdout), rc=p.returncode)


def phase(j, name):
    return next((p for p in j.get("phases", []) if p["name"] == name), dict(items=[], allocated_bytes=0, reserved_bytes=0))


def item(j, name, of):
    return sum(i["bytes"] for i in phase(j, of)["items"] if i["name"] == name)


def of_a_layer(config, name, of, *options):
    """Bytes of an item that one layer more takes."""
    key = "n_layer" if "n_layer" in config else "num_hidden_layers"
    return item(estimate(dict(config, **{key: config[key] + 1}), *options), name, of) - item(estimate(config, *options), name, of)


def kept(config, *options, counters=1024):
    """Bytes a token that one layer keeps for backward, less the two counters of random numbers (512 each) that flash attention has."""
    return (of_a_layer(config, "activations", "forward2", *options, *TOKENS) - counters) / N


def case(number, what, got, want):
    ok(got == want, "%d: %s" % (number, what), "%s, by hand %s" % (got, want))


def elsewhere(number, what, file, name):
    ok(re.search(r"\b%s\b" % re.escape(name), open(os.path.join("tests", file)).read()), "%d: %s: tests/%s, %s" % (number, what, file, name))


B, S = 4, 1024
N, TOKENS = B * S, ["--micro-batch", B, "--seq", S]
h, a, k, d, f, V, L = 1024, 16, 4, 64, 4096, 32768, 4
llama = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=h, num_attention_heads=a, num_key_value_heads=k, head_dim=d,
             intermediate_size=f, vocab_size=V, num_hidden_layers=L, max_position_embeddings=8192, tie_word_embeddings=False)
gpt2 = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=h, n_head=a, n_layer=L, vocab_size=V, n_positions=1024)
bert = dict(model_type="bert", architectures=["BertForMaskedLM"], hidden_size=h, num_attention_heads=a, intermediate_size=f, vocab_size=30522,
            num_hidden_layers=L, max_position_embeddings=1024, type_vocab_size=2)
LINEAR = 2 * h * a * d + 2 * h * k * d + 3 * h * f                     # weights of a block's linear layers
BLOCK = 20 * h + 4 * k * d + 8 * f + 4 * a + 8                         # bytes a token in bf16: norms 16h, queries 2h, keys and values, output 2h, MLP 8f
bf16, mixed, fp32 = ["--precision", "bf16"], ["--precision", "bf16-mixed"], ["--precision", "fp32"]

# 1: the table once in weights and states; logits as wide as ever
untied, tied = (estimate(dict(llama, tie_word_embeddings=t), *bf16, *TOKENS) for t in (False, True))
case(1, "a tied table is loaded once", item(untied, "parameters", "load") - item(tied, "parameters", "load"), 2 * V * h)
case(1, "and has states once", item(untied, "optimizer_state", "forward2") - item(tied, "optimizer_state", "forward2"), 2 * 2 * V * h)
case(1, "its logits are there", item(tied, "logits_and_loss", "forward2"), item(untied, "logits_and_loss", "forward2"))
# 2: with a mask K and V are copied to all heads, and each layer keeps its own bias of B S S in 16 bits
case(2, "grouped heads under a mask", kept(llama, *bf16, "--padding", "mask", counters=0), BLOCK + 4 * (a - k) * d + 2 * S)
case(2, "without one neither", kept(llama, *bf16), BLOCK)
# 3, 5: a norm keeps 4h in fp32, 2h before its weight, 2h after; silu(g) u keeps g, silu(g), u and its product: 2 bytes each
wide = dict(llama, intermediate_size=2 * f)
case(3, "a block with eager RMSNorm", kept(llama, *bf16) - 8 * f - 4 * k * d - 4 * a - 8 - 4 * h, 2 * 8 * h)
case(5, "an MLP that is not fused", kept(wide, *bf16) - kept(llama, *bf16), 8 * f)
# 4: gelu_new keeps four tensors of 4h besides its input and output
case(4, "GPT-2 with gelu_new", kept(gpt2, *bf16), 58 * h + 4 * a + 16)
case(4, "BERT with gelu in one kernel", kept(bert, *bf16), 18 * h + 4 * f + 4 * a + 16)
# 6: 16-bit logits, 4 + 4 in fp32 in forward; three of 4 in backward
j = estimate(llama, *bf16, *TOKENS)
case(6, "logits in forward: 10 N V", item(j, "logits_and_loss", "forward2") // (N * V), 10)
case(6, "and in backward 12 N V", item(j, "logits_and_loss", "backward2") // (N * V), 12)
# 7: Llama-3.2-1B, 8 x 2048, recomputed: 12 N V of 16,384 x 128,256 are 23.48 GiB; a small model is mostly head
small = dict(llama, hidden_size=2048, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192, vocab_size=128256,
             num_hidden_layers=16, tie_word_embeddings=True, max_position_embeddings=131072)
j = estimate(small, *bf16, "--recompute", "full", "--micro-batch", 8, "--seq", 2048)
ok(12 * 16384 * 128256 <= item(j, "logits_and_loss", "backward2") <= 12 * 16384 * 128256 + 2 * MIB and
   item(j, "logits_and_loss", j["peak_phase"]) > 0.65 * j["peak_bytes"], "7: the head of a small model is most of its peak", j["peak_phase"])
# 8: three places of the peak
case(8, "many tokens: in backward", j["peak_phase"][:8], "backward")
case(8, "few tokens and foreach: in the step", estimate(llama, *fp32, "--seq", 64)["peak_phase"][:4], "step")
case(8, "few tokens and fused: not in the step", estimate(dict(llama, vocab_size=256), *mixed, "--seq", 512, "--optimizer",
     "adamw_torch_fused")["peak_phase"][:8], "backward")
# 9: no states before the first step; gradients are gone in the next forward
j = estimate(llama, *fp32, "--seq", 64)
weights = 4 * (2 * V * h + L * (LINEAR + 2 * h) + h)
case(9, "no states before the first step", [item(j, "optimizer_state", p) for p in ("forward1", "backward1")], [0, 0])
case(9, "two of fp32 after it", item(j, "optimizer_state", "step2"), 2 * weights)
case(9, "no gradients in forward", [item(j, "gradients", p) for p in ("forward1", "forward2")], [0, 0])
case(9, "in the step they, and a temporary of all", item(j, "gradients", "step2") + item(j, "temporaries", "step2"), 2 * weights)
# 10: residual and norms in fp32, a bf16 copy of the input for each consumer, one of each weight
case(10, "autocast: activations and copies of weights", of_a_layer(llama, "activations", "forward2", *mixed, *TOKENS),
     N * (30 * h + 4 * k * d + 8 * f + 4 * a + 8) + 2 * LINEAR + 1024)
case(10, "GPT-2 too", of_a_layer(gpt2, "activations", "forward2", *mixed, *TOKENS), N * (86 * h + 4 * a + 16) + 2 * 12 * h * h + 1024)
# 11: weights and states in the dtype that is trained; fp16 as bf16
case(11, "pure bf16: weights and states", [item(estimate(llama, *bf16, "--seq", 64), i, "step2") for i in ("parameters", "optimizer_state")],
     [weights // 2, weights])
case(11, "fp16 takes as much", estimate(llama, "--precision", "fp16", *TOKENS)["peak_bytes"], estimate(llama, *bf16, *TOKENS)["peak_bytes"])
# 12: LoRA of rank 16: A r x in, B out x r in fp32 for seven linear layers
r = 16
trained = L * r * (2 * (h + a * d) + 2 * (h + k * d) + 3 * (h + f))
lora = ["--lora", "r=16,targets=all-linear"]
j = estimate(llama, *bf16, *lora, *TOKENS)
case(12, "trained parameters", j["model"]["params_trainable"], trained)
case(12, "states and gradients of these only", [item(j, "optimizer_state", "step2"), item(j, "gradients", "step2")], [8 * trained, 4 * trained])
ok(item(j, "activations", "forward2") > 0.8 * item(estimate(llama, *bf16, *TOKENS), "activations", "forward2"), "12: activations stay")
# 13: NF4: half a byte a weight, an fp32 scale for 64; quantised scales: a byte each, fp32 for 256 of them
nf4, dq = (estimate(llama, *bf16, "--recompute", "full", "--load", w, *lora, *TOKENS) for w in ("nf4", "nf4-dq"))
case(13, "linear weights in 4 bits", item(nf4, "quantised_parameters", "forward2"), L * LINEAR // 2)
case(13, "quantised scales save", L * (4 * LINEAR // 64 - LINEAR // 64 - 4 * LINEAR // 64 // 256) // MIB,
     (item(nf4, "buffers", "forward2") - item(dq, "buffers", "forward2")) // MIB)
case(13, "tables and norms stay, in fp32", item(nf4, "frozen_parameters", "forward2"), 4 * (2 * V * h + L * 2 * h + h))
# 14: two states of a byte, an fp32 scale for 256 each; below 4,096 elements fp32; of a norm of h = 1,024 so 2 x 4,096 B
eight = estimate(llama, *bf16, "--seq", 64, "--optimizer", "adamw_8bit")
big = 2 * V * h + L * LINEAR
case(14, "states in 8 bits", item(eight, "optimizer_state", "step2"), 2 * big + 2 * 4 * big // 256 + (2 * L + 1) * 2 * 4 * h + 2 * 1024)
table = estimate(llama, *mixed, "--seq", 64, "--optimizer", "adamw_8bit", trainer="hf")
case(14, "Trainer keeps the table's in fp32", item(table, "optimizer_state", "step2") - item(eight, "optimizer_state", "step2"),
     8 * V * h - 2 * V * h - 2 * 4 * V * h // 256)
elsewhere(14, "paged states", "test_optimizer_step.c", "paged_states_of_large_parameters_are_not_on_the_card")
# 15: recomputed, flash or eager keep as much: a block's input
for words in ([], ["--attention", "eager"]):
    case(15, "recomputed %s" % words, of_a_layer(llama, "activations", "forward2", *bf16, "--recompute", "full", *words, *TOKENS), 2 * h * N)
# 16: an input a block, 2h, under autocast 4h
case(16, "checkpoints under autocast", of_a_layer(llama, "activations", "forward2", *mixed, "--recompute", "full", *TOKENS), 4 * h * N)
# 17: what accumulates is there once
peaks = [estimate(llama, *fp32, *TOKENS, "--accumulation", n)["peak_bytes"] for n in (2, 4, 64)]
case(17, "4 and 64 micro-batches as 2", peaks[1:], peaks[:1] * 2)
# 18: flash attention has no term of S S: as many tokens keep as much, packed or not
rows = [of_a_layer(llama, "activations", "forward2", *bf16, "--micro-batch", b, "--seq", s) for b, s in ((8, 512), (4, 1024), (2, 2048))]
case(18, "as many tokens", rows, [N * BLOCK + 1024] * 3)
eager = [of_a_layer(llama, "activations", "forward2", *bf16, "--attention", "eager", "--micro-batch", B, "--seq", s) / (B * s)
         for s in (1024, 2048)]
case(18, "eager: 4 a S of softmax in fp32, 2 a S in bf16, a token", eager[1] - eager[0], 6 * a * 1024)
# 19: allocated grows with the batch, but for rests of 1 MiB that are not split; the cache over it need not
found = [estimate(gpt2, *fp32, "--seq", 256, "--micro-batch", b) for b in range(1, 25)]
ok(all(x["allocated_peak_bytes"] <= y["allocated_peak_bytes"] + 2 * MIB for x, y in zip(found, found[1:])), "19: allocated grows with the batch")
slack = [x["reserved_peak_bytes"] / x["allocated_peak_bytes"] for x in found]
ok(min(slack) >= 1 and any(y < x for x, y in zip(slack, slack[1:])), "19: the cache's share goes up and down", slack)
# 20
for what, name in (("rests of up to 1 MiB count", "what_is_left_of_a_large_block_is_split_off_above_1_mib"),
                   ("segments", "segments_are_2_mib_20_mib_or_a_multiple_of_2_mib"), ("expandable segments", "an_expandable_segment_grows_in_pieces"),
                   ("oversize blocks", "blocks_of_max_split_size_are_kept_whole"), ("streams", "streams_do_not_share_free_blocks")):
    elsewhere(20, what, "test_caching_allocator.c", name)
# 21: cuBLAS: 32 MiB a thread on 9.0, else 2 x 4 MiB and 8 x 16 KiB; backward has a thread of its own; biases are cuBLASLt's: 1 MiB
for card, one in (("h100", 32 * MIB), ("a100-sxm-80gb", 8 * MIB + 128 * 1024)):
    for config, more in ((llama, 0), (gpt2, MIB)):
        j = estimate(config, *bf16, "--device", card, *TOKENS)
        case(21, "workspaces on %s" % card, [item(j, "cublas_workspace", p) for p in ("forward1", "backward2")], [one + more, 2 * one + more])
# 22: 512 MiB where nothing was measured
j = estimate(llama, *bf16, "--device", "h100", *TOKENS)
case(22, "the context of a card nobody measured", j["device_bytes"] - j["reserved_peak_bytes"], 512 * MIB)
t4 = estimate(llama, *fp32, "--device", "t4", *TOKENS)
ok(100 * MIB < t4["device_bytes"] - t4["reserved_peak_bytes"] < 160 * MIB, "22: a T4's, of 105 to 141 MiB as measured")
# 23: what NCCL takes lies outside the allocator, where it is named; one card has none
PARAMETERS = 2 * V * h + L * (LINEAR + 2 * h) + h
cards = [estimate(llama, *mixed, "--device", "h100", *TOKENS, "--world", n) for n in (1, 2)]
named = re.findall(r"NCCL takes ([0-9]+) MB", " ".join(cards[1]["assumptions"]))
outside = [j["device_bytes"] - j["reserved_peak_bytes"] for j in cards]
case(23, "a communicator's bytes beside one card's", outside[1] - outside[0], int((named or [0])[0]) * 10**6)
ok(named and "NCCL" not in " ".join(cards[0]["assumptions"]), "23: a card alone has no communicator", named)
# 24: gradients lie in buckets beside themselves: 4 bytes each. Of loading the peak is before them, when all weights are sent
case(24, "DDP's buckets", [item(cards[1], "reduce_buffers", p) for p in ("forward1", "backward2")], [4 * PARAMETERS] * 2)
# 25: a fourth of the rows of every weight; the head with its norm in 16 bits, as weights and in the buffer they came in
shared = estimate(llama, *mixed, *TOKENS, "--world", 4, "--parallel", "fsdp2", trainer="hf")
case(25, "FSDP: what a card keeps", item(shared, "parameters", "load"), 4 * PARAMETERS // 4)
case(25, "FSDP: what is gathered for the loss", item(shared, "gathered_parameters", "forward2"), 2 * 2 * (V * h + h))
odd = estimate(dict(llama, vocab_size=V + 1), *mixed, *TOKENS, "--world", 4, "--parallel", "fsdp2", trainer="hf")
case(25, "FSDP: a row more is a row more for each card, of two tables", item(odd, "parameters", "load") - 4 * PARAMETERS // 4, 2 * 4 * h)
# 26, 27: pipelines and tensor parallel are no way of these trainers that is known
for number, way in ((26, "pp"), (27, "tp")):
    ok(estimate(llama, *mixed, "--world", 4, "--parallel", way)["rc"] == 2, "%d: --parallel %s is refused" % (number, way))
# 28: grouped products: for one expert more a token its row and its result, 2h each, gate and up 4f, silu 2f, product 2f; below 64 B of indices
moe = dict(llama, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=8, sliding_window=None)
two, three = (kept(dict(moe, num_experts_per_tok=t), *bf16) for t in (2, 3))
ok(4 * h + 8 * f <= three - two <= 4 * h + 8 * f + 64, "28: an expert more for each token", "%s, by hand %s" % (three - two, 4 * h + 8 * f))
weights_of = [item(estimate(dict(moe, num_experts_per_tok=2, num_local_experts=e), *bf16, "--seq", 256), "parameters", "load") for e in (8, 16)]
case(28, "weights of all experts", weights_of[1] - weights_of[0], 2 * L * 8 * (3 * h * f + h))
# 29: norms of queries and keys: 6 bytes an element, a root a head of 4
qwen3 = dict(llama, model_type="qwen3", architectures=["Qwen3ForCausalLM"])
case(29, "QK norms", kept(qwen3, *bf16) - BLOCK, 6 * (a + k) * d + 4 * (a + k))
case(29, "heads wider than h / a", item(estimate(dict(qwen3, head_dim=2 * d), *bf16, "--seq", 64), "parameters", "load") -
     item(estimate(qwen3, *bf16, "--seq", 64), "parameters", "load"), L * (2 * (2 * h * a * d + 2 * h * k * d) + 2 * 512 - 2 * 512))
# 30: patches and a class
vit = dict(model_type="vit", architectures=["ViTForImageClassification"], hidden_size=768, intermediate_size=3072, num_hidden_layers=2,
           num_attention_heads=12, image_size=224, patch_size=16, id2label={str(i): "x" for i in range(10)})
case(30, "tokens of an image", [estimate(dict(vit, image_size=i), *fp32)["settings"]["seq"] for i in (224, 384)], [14 * 14 + 1, 24 * 24 + 1])
# 31: sums over distances: the decoder's own S S scores besides the encoder's and D S of both
t5 = dict(model_type="t5", architectures=["T5ForConditionalGeneration"], d_model=512, d_kv=64, d_ff=2048, num_layers=2, num_decoder_layers=2,
          num_heads=8, vocab_size=32128, relative_attention_num_buckets=32, dropout_rate=0.1)
j = estimate(t5, *fp32, "--seq", 256, "--target-seq", 64)
case(31, "two stacks: weights", item(j, "parameters", "load"), 4 * (32128 * 512 + 2 * 32 * 8 + 2 * (4 * 512 * 512 + 2 * 512 * 2048 + 2 * 512)
     + 2 * (8 * 512 * 512 + 2 * 512 * 2048 + 3 * 512) + 2 * 512))
# 32: activations in host memory were not recorded, and are not counted as if they were nothing
ok(estimate(llama, *mixed, "--world", 4, "--parallel", "fsdp2", "--offload", "activations", trainer="hf")["rc"] in (2, 4), "32: --offload activations is refused")
# 33: a fourth of the masters and of the gradients in fp32, and of the gradients in 16 bits, pinned, each in a power of two; two states of 4 bytes
part = PARAMETERS // 4
j = estimate(llama, *mixed, *TOKENS, "--world", 4, "--parallel", "zero2", "--offload", "optimizer", trainer="hf")
case(33, "ZeRO's optimizer in host memory", j["host_bytes"], sum(1 << (n - 1).bit_length() for n in (4 * part, 4 * part, 2 * part)) + 8 * part)
case(33, "no states on the card", [item(j, n, "step2") for n in ("optimizer_state", "master_parameters")], [0, 0])
# 34, 35
ok(estimate(llama, "--precision", "fp8")["rc"] == 4, "35: fp8 is no precision that is known")
# 36: tables of rotary positions are made in each forward: only the 2 x 32 frequencies stay, 512 B each
case(36, "no tables of positions stay", item(estimate(dict(llama, max_position_embeddings=1 << 20), *bf16, "--seq", 64), "buffers", "load"), 1024)
# 37: an average of the weights is a copy of them
plain, average = (estimate(llama, *fp32, "--seq", 64, *more) for more in ([], ["--resident", "ema"]))
case(37, "an average of the weights", average["peak_bytes"] - plain["peak_bytes"], weights)
# 38
case(38, "24GB are not 24GiB", [estimate(llama, "--seq", 64, "--budget", b)["budget_bytes"] for b in ("24GB", "24GiB")], [24 * 10**9, 24 * GIB])
ok(estimate(llama, "--seq", 64, "--device", "4090")["budget_bytes"] < 24 * GIB, "38: a card of 24 GB has less")
elsewhere(38, "the peak under a cap", "test_caching_allocator.c", "under_a_cap_the_peak_is_lower_than_without")
# 39
j = estimate({x: y for x, y in llama.items() if x != "num_key_value_heads"}, *bf16, "--seq", 64)
whole = estimate(dict(llama, num_key_value_heads=a), *bf16, "--seq", 64)
case(39, "no key and value heads in a config: as many as heads", j["peak_bytes"], whole["peak_bytes"])
ok(estimate({x: y for x, y in llama.items() if x != "model_type"}, *bf16)["rc"] == 4, "39: a config of nothing")
ok(estimate(dict(llama, auto_map={"AutoModelForCausalLM": "x.Y"}, model_type="my_model"), *bf16)["rc"] == 4, "39: code of one's own")
# 40: 512 B for the least tensor: rank 1 on queries and values, A of 4 h, B of 4 a d or 4 k d, all of 512 and more; norms of 64
thin = dict(qwen3, num_hidden_layers=L)
case(40, "norms of 64 in bf16 take 512 B each", item(estimate(thin, *bf16, "--seq", 64), "parameters", "load") -
     item(estimate(llama, *bf16, "--seq", 64), "parameters", "load"), L * 2 * 512)
finish()
E

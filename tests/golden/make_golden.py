"""Golden folders from the real transformers library, computed in float64 (README.md beside this file says what is in them).

    python make_golden.py OUT [NAME...]       write OUT/NAME for these cases, or for all
    python make_golden.py --verify FOLDER...  compute the numbers of golden folders again and compare
    python make_golden.py --list

Needs torch 2.11 and transformers 5.17. No test runs it: what it wrote is committed.
`model.double()` is not float64 in transformers: norms, softmax, RoPE and the loss cast to float32. in_float64() turns those casts
into casts to float64. Rotary frequencies and Gemma's scale of the embedding stay the float32 constants that they are."""

import contextlib
import hashlib
import json
import math
import platform
import sys
from pathlib import Path

import safetensors
import safetensors.torch
import torch
import transformers
from transformers import modeling_rope_utils

LR, BETAS, EPS, DECAY, CLIP, STEPS = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 3
IGNORE = -100

# ---- float64 ----


@contextlib.contextmanager
def in_float64():
    to, as_float, softmax = torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax
    frequencies = dict(modeling_rope_utils.ROPE_INIT_FUNCTIONS)

    def wider(x):
        return torch.float64 if x is torch.float32 else x

    def patch():
        torch.Tensor.to = lambda self, *a, **k: to(self, *map(wider, a), **{n: wider(v) for n, v in k.items()})
        torch.Tensor.float = torch.Tensor.double
        torch.nn.functional.softmax = lambda x, *a, **k: softmax(x, *a, **{n: wider(v) for n, v in k.items()})

    def restore():
        torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax = to, as_float, softmax

    def in_float32(function):
        def call(*a, **k):
            restore()
            try:
                return function(*a, **k)
            finally:
                patch()
        return call

    modeling_rope_utils.ROPE_INIT_FUNCTIONS.update({n: in_float32(f) for n, f in frequencies.items()})
    patch()
    try:
        yield
    finally:
        restore()
        modeling_rope_utils.ROPE_INIT_FUNCTIONS.update(frequencies)


# ---- a run ----


def names_of(model, saved):
    """Parameter -> the name it is saved under. Values are drawn at random, so equal values are the same tensor."""
    by_value = {(tuple(t.shape), t.double().numpy().tobytes()): name for name, t in saved.items()}
    return {id(p): by_value[tuple(p.shape), p.detach().double().numpy().tobytes()] for p in model.parameters()}


def loss_of(model, batch):
    out = model(**batch, use_cache=False) if model.config.model_type not in ("bert", "roberta") else model(**batch)
    return out.loss, out.logits


def run(model, saved, batch, double):
    """Losses, norms, gradients and parameters by saved name."""
    params = list(model.parameters())
    name = names_of(model, saved)
    groups = [{"params": [p for p in params if p.ndim >= 2], "weight_decay": DECAY},
              {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=LR, betas=BETAS, eps=EPS, foreach=False)
    r = {"losses": [], "grad_norms": [], "outside": []}
    with in_float64() if double else contextlib.nullcontext():
        for step in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            loss, logits = loss_of(model, batch)
            loss.backward()
            grads = [p.grad for p in params if p.grad is not None]
            norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in grads))
            if step == 0:
                r["logits"] = logits.detach().clone()
                r["grads"] = {name[id(p)]: p.grad.detach().clone() for p in params if p.grad is not None}
                r["outside"] = sorted(name[id(p)] for p in params if p.grad is None)
            r["losses"].append(loss.item())
            r["grad_norms"].append(norm)
            for g in grads:
                g.mul_(min(1.0, CLIP / (norm + 1e-6)))
            optimizer.step()
        r["losses"].append(loss_of(model, batch)[0].item())
    r["step3"] = {name[id(p)]: p.detach().clone() for p in params if name[id(p)] in r["grads"]}
    return r


def directional_error(model, batch, grads, saved):
    name, h = names_of(model, saved), 1e-6
    g = torch.Generator().manual_seed(7)
    params = [p for p in model.parameters() if name[id(p)] in grads]
    with torch.no_grad(), in_float64():
        along = [torch.randn(p.shape, generator=g, dtype=torch.float64) for p in params]
        held_back = {id(m.weight): m.padding_idx for m in model.modules() if isinstance(m, torch.nn.Embedding) and m.padding_idx is not None}
        for p, d in zip(params, along):
            if id(p) in held_back:
                d[held_back[id(p)]] = 0
        slope = sum(float((grads[name[id(p)]] * d).sum()) for p, d in zip(params, along))
        ends = []
        for sign in (1, -2):
            for p, d in zip(params, along):
                p.add_(d, alpha=sign * h)
            ends.append(loss_of(model, batch)[0].item())
        for p, d in zip(params, along):
            p.add_(d, alpha=h)
    return abs((ends[0] - ends[1]) / (2 * h) - slope) / abs(slope)


# ---- what goes in ----


def randomize(model, generator):
    """Every tensor random: norm weights about 1 (Gemma's about 0), the rest about 0, none zero."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = p.ndim == 1 and name.endswith(".weight") and not model.config.model_type.startswith("gemma")
            p.copy_(float(norm) + 0.1 * torch.randn(p.shape, generator=generator))


def make_batch(case, config, generator):
    samples, seq = 2, case.get("seq", 32)
    of_samples, of_tokens = (case["class"].endswith(kind) for kind in ("SequenceClassification", "TokenClassification"))
    ids = torch.randint(0, config.vocab_size, (samples, seq), generator=generator)
    if config.model_type in ("bert", "roberta"):
        chosen = torch.rand((samples, seq), generator=generator) < 0.4
        n = config.num_labels if of_tokens else config.vocab_size
        labels = torch.where(chosen, torch.randint(0, n, (samples, seq), generator=generator), IGNORE)
        mask = torch.ones_like(ids)
        mask[1, -7:] = 0
        ids[0, 9] = config.pad_token_id  # in the text: no gradient of its row; RoBERTa leaves it out of its positions
        ids, labels = torch.where(mask == 1, ids, config.pad_token_id), torch.where(mask == 1, labels, IGNORE)
        types = torch.randint(0, config.type_vocab_size, (samples, seq), generator=generator)
        if of_samples:
            labels = torch.randint(0, config.num_labels, (samples,), generator=generator)
        return {"input_ids": ids, "labels": labels, "attention_mask": mask, "token_type_ids": types}
    labels = torch.randint(0, config.num_labels, (samples, seq), generator=generator) if of_tokens else ids.clone()
    labels[0, :5], labels[1, 7], labels[1, -3:] = IGNORE, IGNORE, IGNORE
    if of_samples:
        ids = torch.where(ids == config.pad_token_id, (ids + 1) % config.vocab_size, ids)
        ids[1, -7:] = ids[0, 9] = config.pad_token_id  # at the end, and once in the text
        labels = torch.randint(0, config.num_labels, (samples,), generator=generator)
    return {"input_ids": ids, "labels": labels}


def tiny(**more):
    return dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, vocab_size=113, max_position_embeddings=64, **more)


def decoder(cls, seq=32, **more):
    config = tiny()
    config.update(more)
    return {"class": cls, "seq": seq, "config": config}


def bert_like(cls, **more):
    config = tiny(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.update(more)
    return {"class": cls, "config": config}


def opt(cls="OPTForCausalLM", **more):
    config = dict(hidden_size=32, ffn_dim=56, num_hidden_layers=2, num_attention_heads=4, vocab_size=113, max_position_embeddings=40, dropout=0.0)
    config.update(more)
    return {"class": cls, "config": config}


def gpt2(cls="GPT2LMHeadModel", **more):
    config = dict(n_embd=32, n_layer=2, n_head=4, vocab_size=113, n_positions=40, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                  eos_token_id=0)
    config.update(more)
    return {"class": cls, "config": config}


def scaled(rope_type, factor, **more):
    return dict({"rope_type": rope_type, "rope_theta": 10000.0, "factor": factor}, **more)


LLAMA, PHI3 = "LlamaForCausalLM", "Phi3ForCausalLM"
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.3], "long_factor": [1.7, 4.5]}

CASES = {
    "gemma_mqa": decoder("GemmaForCausalLM", num_key_value_heads=1, head_dim=12),
    "gemma_bias_relu": decoder("GemmaForCausalLM", num_key_value_heads=2, head_dim=8, attention_bias=True, hidden_act="relu"),
    "gemma2_no_caps": decoder("Gemma2ForCausalLM", num_key_value_heads=4, head_dim=8, attn_logit_softcapping=None, final_logit_softcapping=None,
                               query_pre_attn_scalar=20, sliding_window=9, num_hidden_layers=3, attention_bias=True),
    "phi3_gqa": decoder(PHI3, num_key_value_heads=2, pad_token_id=0),
    "phi3_window": decoder(PHI3, sliding_window=7, pad_token_id=3, tie_word_embeddings=True),
    "phi3_longrope": decoder(PHI3, seq=40, num_key_value_heads=2, pad_token_id=0, max_position_embeddings=96, original_max_position_embeddings=24,
                             rope_parameters=dict(LONG, partial_rotary_factor=0.5)),
    "phi3_shortrope": decoder(PHI3, seq=20, num_key_value_heads=2, pad_token_id=0, max_position_embeddings=96, original_max_position_embeddings=24,
                              rope_parameters=dict(LONG, partial_rotary_factor=0.5)),
    "olmo2_gqa": decoder("Olmo2ForCausalLM", num_key_value_heads=2),
    "olmo2_bias": decoder("Olmo2ForCausalLM", attention_bias=True, tie_word_embeddings=True, eos_token_id=2),
    "gpt_neox": decoder("GPTNeoXForCausalLM", rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
    "gpt_neox_sequential": decoder("GPTNeoXForCausalLM", use_parallel_residual=False, hidden_act="gelu_fast", num_attention_heads=2, tie_word_embeddings=True,
                                   rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0, "partial_rotary_factor": 0.5}),
    "gpt_neox_no_bias": decoder("GPTNeoXForCausalLM", attention_bias=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                                                                             "partial_rotary_factor": 1.0}),
    "roberta": bert_like("RobertaForMaskedLM", max_position_embeddings=36, type_vocab_size=3),
    "roberta_one_type": bert_like("RobertaForMaskedLM", max_position_embeddings=34, type_vocab_size=1, hidden_act="gelu_new", layer_norm_eps=1e-5),
    "roberta_untied": bert_like("RobertaForMaskedLM", tie_word_embeddings=False),
    "bert_untied": bert_like("BertForMaskedLM", tie_word_embeddings=False),
    "bert_relu": bert_like("BertForMaskedLM", hidden_act="relu", pad_token_id=5),
    "bert_gelu_new": bert_like("BertForMaskedLM", hidden_act="gelu_new", num_attention_heads=1),
    "opt_350m": opt(word_embed_proj_dim=20, do_layer_norm_before=False),
    "opt_350m_untied": opt(word_embed_proj_dim=20, do_layer_norm_before=False, tie_word_embeddings=False, activation_function="gelu"),
    "opt_not_affine": opt(layer_norm_elementwise_affine=False, enable_bias=False),
    "opt_no_final_norm": opt(_remove_final_layer_norm=True, word_embed_proj_dim=44),
    "qwen2_window": decoder("Qwen2ForCausalLM", num_key_value_heads=2, num_hidden_layers=3, use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen2_padding": decoder("Qwen2ForCausalLM", num_key_value_heads=1, tie_word_embeddings=True, pad_token_id=17, hidden_act="gelu"),
    "qwen3_bias_window": decoder("Qwen3ForCausalLM", num_key_value_heads=1, head_dim=10, attention_bias=True, num_hidden_layers=3, use_sliding_window=True,
                                 sliding_window=6, layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "llama_biases": decoder(LLAMA, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=10, attention_bias=True, mlp_bias=True),
    "llama_linear": decoder(LLAMA, num_key_value_heads=2, rope_parameters=scaled("linear", 2.5)),
    "llama_dynamic": decoder(LLAMA, max_position_embeddings=32, rope_parameters=scaled("dynamic", 3.0)),
    "llama_yarn": decoder(LLAMA, num_key_value_heads=2, head_dim=16, max_position_embeddings=128,
                          rope_parameters=scaled("yarn", 8.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=0.6, beta_fast=4.0,
                                                 beta_slow=2.0, truncate=False)),
    "llama_yarn_plain": decoder(LLAMA, seq=40, max_position_embeddings=128, rope_parameters=scaled("yarn", 4.0, original_max_position_embeddings=32)),
    "llama_one_layer": decoder(LLAMA, num_hidden_layers=1, num_attention_heads=1, hidden_act="gelu_pytorch_tanh", seq=11, pad_token_id=-1),
    "mistral_full": decoder("MistralForCausalLM", num_key_value_heads=2, sliding_window=None),
    "mistral_head": decoder("MistralForCausalLM", num_key_value_heads=2, head_dim=14, hidden_size=30, sliding_window=5, tie_word_embeddings=True, hidden_act="relu"),
    "llama_sequence": decoder("LlamaForSequenceClassification", num_key_value_heads=2, pad_token_id=0, num_labels=5),
    "gemma2_sequence": decoder("Gemma2ForSequenceClassification", num_key_value_heads=2, head_dim=8, num_labels=3),
    "phi3_tokens": decoder("Phi3ForTokenClassification", num_key_value_heads=2, pad_token_id=0, num_labels=4, classifier_dropout=0.0),
    "qwen2_tokens": decoder("Qwen2ForTokenClassification", num_key_value_heads=2, num_labels=6, classifier_dropout=0.0),
    "gpt2_tokens": gpt2("GPT2ForTokenClassification", num_labels=7, classifier_dropout=0.0),
    "gpt2_sequence": gpt2("GPT2ForSequenceClassification", num_labels=3, pad_token_id=4),
    "gpt2_cross": gpt2(add_cross_attention=True),
    "gpt_neox_tokens": decoder("GPTNeoXForTokenClassification", num_labels=4, classifier_dropout=0.0,
                               rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
    "gpt_neox_sequence": decoder("GPTNeoXForSequenceClassification", num_labels=4, pad_token_id=3,
                                 rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
    "opt_sequence": opt("OPTForSequenceClassification", word_embed_proj_dim=20, num_labels=4),
    "bert_sequence": bert_like("BertForSequenceClassification", num_labels=3),
    "bert_tokens": bert_like("BertForTokenClassification", num_labels=5),
    "bert_decoder": bert_like("BertLMHeadModel", is_decoder=True, add_cross_attention=True),
    "roberta_sequence": bert_like("RobertaForSequenceClassification", max_position_embeddings=36, num_labels=4),
    "roberta_tokens": bert_like("RobertaForTokenClassification", max_position_embeddings=36, num_labels=2),
    "roberta_decoder": bert_like("RobertaForCausalLM", max_position_embeddings=36, is_decoder=True),
    "gpt2_unscaled": gpt2(scale_attn_weights=False, n_inner=50),
    "gpt2_untied_relu": gpt2(tie_word_embeddings=False, activation_function="relu", n_head=1),
    "gpt2_gelu": gpt2(activation_function="gelu", layer_norm_epsilon=1e-3),
}

# ---- folders ----


def class_of(config):
    return getattr(transformers, config.architectures[0])


def load(folder, double):
    config = transformers.AutoConfig.from_pretrained(folder)
    model = class_of(config).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.train()
    return model.double() if double else model


def relative(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def write(folder, name, case):
    seed = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100000
    generator = torch.Generator().manual_seed(seed)
    cls = getattr(transformers, case["class"])
    model = cls(cls.config_class(**case["config"]))
    randomize(model, generator)
    batch = make_batch(case, model.config, generator)
    folder.mkdir(parents=True, exist_ok=True)
    if model.can_generate():
        model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    saved = safetensors.torch.load_file(folder / "model.safetensors")
    safetensors.torch.save_file(batch, folder / "batch.safetensors")

    r, r32 = (run(load(folder, double), saved, batch, double) for double in (True, False))
    largest = max(float(g.abs().max()) for g in r["grads"].values())
    zero = sorted(n for n, g in r["grads"].items() if 0 < float(g.abs().max()) < 1e-12 * largest)
    some = sorted(n for n, g in r["grads"].items() if n not in zero and bool(((g != 0) & (g.abs() < 1e-12 * largest)).any()))
    expect = {"loss": torch.tensor([r["losses"][0]], dtype=torch.float64), "loss32": torch.tensor([r32["losses"][0]]),
              "grad_norm": torch.tensor([r["grad_norms"][0]], dtype=torch.float64), "losses": torch.tensor(r["losses"], dtype=torch.float64),
              "grad_norms": torch.tensor(r["grad_norms"], dtype=torch.float64), "logits_sample": r["logits"][:, -4:][..., :16].float().contiguous()}
    expect.update({"grad." + n: g.float().contiguous() for n, g in r["grads"].items()})
    expect.update({"step3." + n: p.float().contiguous() for n, p in r["step3"].items()})
    safetensors.torch.save_file(expect, folder / "expect.safetensors")
    grad_rel = {n: float((r32["grads"][n] - g).abs().max() / g.abs().max()) for n, g in r["grads"].items() if n not in zero and float(g.abs().max()) > 0}
    worst = max(grad_rel, key=grad_rel.get)
    golden = {
        "name": name, "architecture": case["class"], "seed": seed, "dtype": "float32 weights, float64 reference",
        "parameters": sum(p.numel() for p in model.parameters()), "trained_parameters": sum(g.numel() for g in r["grads"].values()),
        "batch": {n: list(t.shape) for n, t in batch.items()},
        "loss_rule": "cross-entropy, mean over labels != -100, not shifted" if case["class"].endswith(("MaskedLM", "Classification"))
                     else "cross-entropy of position t against label t+1, mean over those != -100",
        "recipe": {"optimizer": "adamw", "steps": STEPS, "lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": DECAY,
                   "weight_decay_on": "parameters with ndim >= 2", "clip_norm": CLIP, "clip_formula": "g *= min(1, clip_norm/(norm + 1e-6))",
                   "batch": "the same batch every step", "dropout": 0.0, "attention": "eager"},
        "notes": [f"{n}: a part of it has zero gradient in exact arithmetic (a key bias that softmax ignores)" for n in some],
        "not_in_the_graph": r["outside"], "zero_gradient": zero,
        "expect": {"losses": "before step 1, 2, 3 and after step 3", "grad_norms": "before clipping, steps 1, 2, 3",
                   "logits_sample": "[:, last 4 positions, first 16 of the vocabulary]",
                   "grad": "of the loss before step 1, before clipping; a tied tensor has the sum, under the name that is saved"},
        "fp32_vs_float64": {"losses_rel_max": relative(r32["losses"], r["losses"]), "grad_rel_max": grad_rel[worst], "grad_rel_max_tensor": worst,
                            "grad_norm_rel": relative(r32["grad_norms"], r["grad_norms"])},
        "directional_derivative_rel_error": directional_error(load(folder, True), batch, r["grads"], saved),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "safetensors": safetensors.__version__,
                     "python": platform.python_version()},
    }
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    kilobytes = sum(f.stat().st_size for f in folder.iterdir()) // 1000
    print(f"{name}: {kilobytes} kB, loss {r['losses'][0]:.6f}, fp32 is off by {relative(r32['losses'], r['losses']):.1e} in losses, "
          f"{grad_rel[worst]:.1e} in {worst}; slope off by {golden['directional_derivative_rel_error']:.1e}")


def verify(folder):
    saved = safetensors.torch.load_file(folder / "model.safetensors")
    expect = safetensors.torch.load_file(folder / "expect.safetensors")
    r = run(load(folder, True), saved, safetensors.torch.load_file(folder / "batch.safetensors"), True)
    zero = json.loads((folder / "golden.json").read_text())["zero_gradient"]
    off = {}
    for kind, of in (("grad", r["grads"]), ("step3", r["step3"])):
        tensors = {n: t for n, t in of.items() if n not in zero}
        off[kind] = max(float((t - expect[f"{kind}.{n}"].double()).abs().max() / t.abs().max()) for n, t in tensors.items())
    off_by = {key: relative(r[key], expect[key].tolist()) for key in ("losses", "grad_norms")}
    print(f"{folder.name}: losses off by {off_by['losses']:.1e}, norms {off_by['grad_norms']:.1e}, "
          f"gradients {off['grad']:.1e}, parameters {off['step3']:.1e}")


def main(args):
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if not args or args[0] == "--list":
        print("\n".join(CASES) if args else __doc__)
    elif args[0] == "--verify":
        for folder in args[1:]:
            verify(Path(folder))
    else:
        for name in args[1:] or CASES:
            write(Path(args[0]) / name, name, CASES[name])


if __name__ == "__main__":
    main(sys.argv[1:])

"""Golden folders of LoRA from the real peft library, computed in float64 (README.md beside this file says what is in them).

    python make_lora_golden.py OUT [NAME...]       write OUT/NAME for these cases, or for all

Needs torch 2.11, transformers 5.17 and peft 0.19. No test runs it: what it wrote is committed. Recipe, batch and float64 are make_golden.py's."""

import contextlib
import hashlib
import json
import math
import platform
import sys
from pathlib import Path

import peft
import safetensors.torch
import torch
import transformers

from make_golden import BETAS, CLIP, DECAY, EPS, LLAMA, LR, STEPS, class_of, decoder, gpt2, in_float64, loss_of, make_batch, randomize, relative

PEFT_PREFIX = "base_model.model."

CASES = {
    "llama": (decoder(LLAMA, num_key_value_heads=2), dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "gpt2": (gpt2(), dict(r=3, lora_alpha=4, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    "qwen2": (decoder("Qwen2ForCausalLM", num_key_value_heads=2, tie_word_embeddings=True),
              dict(r=5, lora_alpha=7, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    "gpt_neox": (decoder("GPTNeoXForCausalLM", rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
                 dict(r=4, lora_alpha=6, target_modules=["query_key_value", "dense"])),
}


def wrapped(folder, base_dtype):
    config = transformers.AutoConfig.from_pretrained(folder)
    base = class_of(config).from_pretrained(folder, dtype=base_dtype, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(base, folder, is_trainable=True)
    model.train()
    return model


def name_of(parameter):
    return parameter.removeprefix(PEFT_PREFIX).replace(".default.weight", ".weight")


def run(model, batch, context):
    """Losses, norms, gradients and adapters by saved name. Autocast keeps its casts of weights until it ends: one context a step."""
    params = {name_of(n): p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(params.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, foreach=False)
    r = {"losses": [], "grad_norms": []}
    for step in range(STEPS):
        with context():
            optimizer.zero_grad(set_to_none=True)
            loss, _ = loss_of(model, batch)
            loss.backward()
            norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in params.values()))
            if step == 0:
                r["grads"] = {n: p.grad.detach().clone() for n, p in params.items()}
            r["losses"].append(loss.item())
            r["grad_norms"].append(norm)
            for p in params.values():
                p.grad.mul_(min(1.0, CLIP / (norm + 1e-6)))
            optimizer.step()
    with context():
        r["losses"].append(loss_of(model, batch)[0].item())
    r["step3"] = {n: p.detach().clone() for n, p in params.items()}
    return r


def merged(model):
    """The adapted weights of the model with its adapters folded in, by the names of the model alone."""
    targets = {n.removeprefix(PEFT_PREFIX) for n, m in model.named_modules() if hasattr(m, "lora_A")}
    return {n: p.detach().clone() for n, p in model.merge_and_unload().named_parameters() if n.removesuffix(".weight") in targets}


def write(folder, name, case, lora):
    seed = int(hashlib.sha256(("lora " + name).encode()).hexdigest(), 16) % 100000
    generator = torch.Generator().manual_seed(seed)
    cls = getattr(transformers, case["class"])
    model = cls(cls.config_class(**case["config"]))
    randomize(model, generator)
    batch = make_batch(case, model.config, generator)
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **lora))
    with torch.no_grad():  # B, too, which peft begins with zeros
        for n, p in model.named_parameters():
            if p.requires_grad:
                p.copy_(0.1 * torch.randn(p.shape, generator=generator))
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    safetensors.torch.save_file(batch, folder / "batch.safetensors")

    exact = wrapped(folder, torch.float32).double()
    r = run(exact, batch, in_float64)
    r32 = run(wrapped(folder, torch.float32), batch, contextlib.nullcontext)
    r16 = run(wrapped(folder, torch.bfloat16), batch, lambda: torch.autocast("cpu", torch.bfloat16))
    expect = {"losses": torch.tensor(r["losses"], dtype=torch.float64), "grad_norms": torch.tensor(r["grad_norms"], dtype=torch.float64),
              "losses_bf16": torch.tensor(r16["losses"], dtype=torch.float64), "grad_norms_bf16": torch.tensor(r16["grad_norms"], dtype=torch.float64)}
    expect.update({"grad." + n: g.float().contiguous() for n, g in r["grads"].items()})
    expect.update({"step3." + n: p.float().contiguous() for n, p in r["step3"].items()})
    expect.update({"merged." + n: p.float().contiguous() for n, p in merged(exact).items()})
    safetensors.torch.save_file(expect, folder / "expect.safetensors")
    grad_rel = max(float((r32["grads"][n] - g).abs().max() / g.abs().max()) for n, g in r["grads"].items())
    golden = {
        "name": name, "architecture": case["class"], "seed": seed, "lora": {k: v for k, v in lora.items() if k != "fan_in_fan_out"},
        "recipe": {"optimizer": "adamw", "steps": STEPS, "lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": DECAY, "clip_norm": CLIP},
        "expect": {"losses": "before step 1, 2, 3 and after step 3, float64", "losses_bf16": "base in bfloat16, adapters in float32, under autocast",
                   "merged": "adapted weights after step 3, W + s B A"},
        "fp32_vs_float64": {"losses_rel_max": relative(r32["losses"], r["losses"]), "grad_rel_max": grad_rel},
        "bf16_vs_float64": {"losses_rel_max": relative(r16["losses"], r["losses"]), "grad_norm_rel_max": relative(r16["grad_norms"], r["grad_norms"])},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__, "python": platform.python_version()},
    }
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    print(f"{name}: loss {r['losses']}, fp32 off by {golden['fp32_vs_float64']}, bf16 by {golden['bf16_vs_float64']}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for wanted in sys.argv[2:] or CASES:
        write(Path(sys.argv[1]) / wanted, wanted, *CASES[wanted])

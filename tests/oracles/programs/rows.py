#!/usr/bin/env python3
"""Whole training steps of known models, peaks by phase as PyTorch's allocator counts them: rows to hold the estimates against.

    rows.py OUT.csv [--null build/null]

Two steps as `vplan estimate --trainer torch` means them, on one card of compute capability 9.0 with 132 multiprocessors that the
stand-in plays, addresses rising. cuBLAS's workspaces are part of every number.
"""
import argparse
import contextlib
import csv
import gc
import json
import os

import play

LLAMA_1B = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=2048, num_attention_heads=32,
                num_key_value_heads=8, head_dim=64, intermediate_size=8192, vocab_size=128256, num_hidden_layers=16,
                max_position_embeddings=131072, tie_word_embeddings=True, rms_norm_eps=1e-5)
LLAMA_7B = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=4096, num_attention_heads=32,
                num_key_value_heads=32, intermediate_size=11008, vocab_size=32000, num_hidden_layers=32,
                max_position_embeddings=4096, tie_word_embeddings=False, rms_norm_eps=1e-5)
TINY = dict(LLAMA_7B, hidden_size=2048, num_key_value_heads=4, intermediate_size=5632, num_hidden_layers=22)
SMOL = dict(LLAMA_1B, hidden_size=576, num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536,
            vocab_size=49152, num_hidden_layers=30, max_position_embeddings=8192)
QWEN = dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], hidden_size=896, num_attention_heads=14,
            num_key_value_heads=2, intermediate_size=4864, vocab_size=151936, num_hidden_layers=24,
            max_position_embeddings=32768, tie_word_embeddings=True, use_sliding_window=False, sliding_window=None)
MISTRAL = dict(model_type="mistral", architectures=["MistralForCausalLM"], hidden_size=4096, num_attention_heads=32,
               num_key_value_heads=8, head_dim=128, intermediate_size=14336, vocab_size=32768, num_hidden_layers=32,
               max_position_embeddings=32768, sliding_window=None, tie_word_embeddings=False)
GPT2 = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=768, n_head=12, n_layer=12, vocab_size=50257,
            n_positions=1024)
GPT2_L = dict(GPT2, n_embd=1280, n_head=20, n_layer=36)

ROWS = [  # model, precision, attention, recompute, optimizer, batch, sequence
    ("llama-1b", LLAMA_1B, "bf16", "sdpa:flash", "none", "adamw_torch", 2, 1536),
    ("llama-1b", LLAMA_1B, "bf16-mixed", "sdpa:flash", "full", "adamw_torch_fused", 3, 1024),
    ("llama-1b", LLAMA_1B, "fp32", "sdpa:flash", "none", "adamw_torch_fused", 2, 768),
    ("llama-1b", LLAMA_1B, "bf16-amp", "eager", "none", "sgd", 1, 1024),
    ("llama-7b", LLAMA_7B, "bf16", "sdpa:flash", "full", "adamw_torch", 4, 2048),
    ("llama-7b", LLAMA_7B, "bf16-mixed", "eager", "none", "adamw_torch_fused", 1, 640),
    ("tiny-1b", TINY, "bf16", "eager", "full", "sgd_momentum", 2, 1024),
    ("tiny-1b", TINY, "fp32", "sdpa:flash", "full", "adamw_torch_forloop", 3, 1024),
    ("smol-135m", SMOL, "bf16-mixed", "sdpa:flash", "none", "adamw_torch", 8, 1000),
    ("smol-135m", SMOL, "bf16", "sdpa:flash", "none", "adamw_torch_fused", 4, 512),
    ("qwen-0.5b", QWEN, "bf16-mixed", "sdpa:flash", "none", "adamw_torch", 4, 1024),
    ("qwen-0.5b", QWEN, "bf16", "sdpa:flash", "full", "adamw_torch_fused", 8, 2048),
    ("qwen-0.5b", QWEN, "fp32", "sdpa:flash", "full", "sgd", 2, 512),
    ("mistral-7b", MISTRAL, "bf16", "sdpa:flash", "none", "adamw_torch_fused", 1, 2048),
    ("mistral-7b", MISTRAL, "bf16-mixed", "sdpa:flash", "full", "adamw_torch", 2, 4096),
    ("gpt2", GPT2, "bf16-mixed", "sdpa:flash", "none", "adamw_torch", 8, 1024),
    ("gpt2", GPT2, "fp32", "eager", "full", "adamw_torch_fused", 4, 512),
    ("gpt2", GPT2, "bf16", "sdpa:flash", "full", "sgd_momentum", 3, 1000),
    ("gpt2-large", GPT2_L, "bf16", "sdpa:flash", "none", "adamw_torch", 2, 1024),
    ("gpt2-large", GPT2_L, "bf16-amp", "eager", "none", "adamw_torch_forloop", 1, 768),
]
PHASES = ["load"] + ["%s%d" % (n, i) for i in (1, 2) for n in ("forward", "backward", "step")]


def optimizer(name, params):
    import torch
    adam = {"adamw_torch": {"foreach": True}, "adamw_torch_fused": {"fused": True}, "adamw_torch_forloop": {"foreach": False}}
    if name in adam:
        return torch.optim.AdamW(params, lr=1e-4, weight_decay=0.01, **adam[name])
    return torch.optim.SGD(params, lr=1e-4, momentum=0.9 if name == "sgd_momentum" else 0.0)


def measure(row):
    import torch
    name, config, precision, attention, recompute, opt_name, batch, seq = row
    torch.backends.cudnn.enabled = False
    play.choose_attention(attention)
    peaks = {}

    def end(phase):
        s = torch.cuda.memory_stats()
        peaks["allocated_" + phase] = s["allocated_bytes.all.peak"]
        peaks["reserved"] = max(peaks.get("reserved", 0), s["reserved_bytes.all.peak"])
        torch.cuda.reset_peak_memory_stats()
    fields = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    v = dict(task="clm", precision=precision, attention=attention, lora="none", recompute=recompute)
    m = play.make_model(v, (config["model_type"], fields))
    gc.collect()
    end("load")
    opt = optimizer(opt_name, [p for p in m.parameters() if p.requires_grad])
    inputs = {"input_ids": torch.zeros(batch, seq, device="cuda", dtype=torch.int64),
              "labels": torch.zeros(batch, seq, device="cuda", dtype=torch.int64)}
    for step in (1, 2):
        with torch.autocast("cuda", dtype=torch.bfloat16) if precision in ("bf16-mixed", "bf16-amp") else contextlib.nullcontext():
            loss = m(**inputs).loss
        end("forward%d" % step)
        loss.backward()
        loss = None
        end("backward%d" % step)
        opt.step()
        end("step%d" % step)
        opt.zero_grad(set_to_none=True)
        torch.cuda.reset_peak_memory_stats()
    return peaks


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null), processors=132)
    import torch
    import transformers
    play.quiet()
    torch._C._cuda_getDeviceCount = lambda: 1
    with open(a.out, "w", newline="") as f:
        f.write("# made by tests/oracles/programs/rows.py: torch %s, transformers %s\n"
                % (torch.__version__.split("+")[0], transformers.__version__))
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["model", "config", "precision", "attention", "recompute", "optimizer", "micro_batch", "seq", "reserved"]
                     + ["allocated_" + p for p in PHASES])
        for row in ROWS:
            got = play.in_child(lambda: measure(row))
            out.writerow([row[0], json.dumps(row[1]), *row[2:], got["reserved"]] + [got["allocated_" + p] for p in PHASES])


if __name__ == "__main__":
    main()

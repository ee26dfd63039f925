#!/usr/bin/env python3
"""What PyTorch asks its allocator for in two training steps of a tiny GPT-2: the figures of
tests/test_training_step.c. Needs torch 2.11 and transformers 5.17; no GPU:

    vplan dryrun --device a100 -- python3 tests/oracles/eager_step.py

Requested bytes, cuBLAS's workspaces taken off: they are what is left of the first step's end when
parameters, states and batch are taken off. One line a phase: at its end, and the most in it."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def note(what, less=0):
    s = torch.cuda.memory_stats()
    print("%-10s %9d %9d" % (what, s["requested_bytes.all.current"] - less, s["requested_bytes.all.peak"] - less), flush=True)
    torch.cuda.reset_peak_memory_stats()
    return s["requested_bytes.all.current"] - less


config = GPT2Config(n_embd=48, n_layer=2, n_head=3, vocab_size=60, use_cache=False, attn_implementation="sdpa")
model = GPT2LMHeadModel(config).to(torch.bfloat16).cuda().train()
parameters = note("load")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ids = torch.ones(2, 32, dtype=torch.long, device="cuda")
torch.backends.cuda.enable_math_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
batch = note("batch") - parameters
workspaces = 0
for step in range(2):
    loss = model(input_ids=ids, labels=ids).loss
    note("forward", workspaces)
    loss.backward()
    note("backward", workspaces)
    del loss
    optimizer.step()
    note("update", workspaces)
    optimizer.zero_grad(set_to_none=True)
    end = note("zero", workspaces)
    if step == 0:
        workspaces = end - 3 * parameters - batch

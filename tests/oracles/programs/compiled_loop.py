"""A plain loop, or transformers' Trainer, with and without torch.compile: compiled_loop.py CONFIG TRAINER PRECISION RECOMPUTE BATCH SEQ COMPILED."""
import json
import sys

import torch
import transformers

config, trainer, precision, recompute, batch, seq, compiled = sys.argv[1:8]
batch, seq, compiled = int(batch), int(seq), compiled == "1"
with open(config) as f:
    fields = json.load(f)
causal = not fields["architectures"][0].endswith("ForMaskedLM")
c = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_dropout"):
    if hasattr(c, name):
        setattr(c, name, 0.0)
c.use_cache = False
with torch.device("cuda"):
    model = (transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM).from_config(c, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
if trainer == "hf":
    sample = {"input_ids": [1] * seq, "labels": [1] * seq}
    options = transformers.TrainingArguments(output_dir="out", per_device_train_batch_size=batch, max_steps=3, report_to=[], save_strategy="no", bf16=precision == "bf16-mixed",
                                             gradient_checkpointing=recompute == "full", torch_compile=compiled, optim="adamw_torch_fused", logging_strategy="no",
                                             dataloader_pin_memory=False)
    transformers.Trainer(model=model, args=options, train_dataset=[sample] * (batch * 3), data_collator=transformers.default_data_collator).train()
    sys.exit()
model.train()
if recompute == "full":
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
call = torch.compile(model) if compiled else model
tokens = torch.ones(batch, seq, dtype=torch.long, device="cuda")
for _ in range(3):
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16-mixed"):
        loss = call(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

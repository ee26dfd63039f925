"""A plain training loop that takes its settings from an emitted vplan_settings.py: plain_loop.py FOLDER CONFIG.

What a user's own loop would be; `end_to_end.py` plays it."""
import json
import sys

import torch
import transformers

sys.path.insert(0, sys.argv[1])
import vplan_settings

S = vplan_settings.SETTINGS
fields = {k: v for k, v in json.load(open(sys.argv[2])).items() if k not in ("architectures",)}
config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
config.use_cache = False
config._attn_implementation = "eager" if S["attention"] == "eager" else "sdpa"
dtype = getattr(torch, S["weights"])
with torch.device("cuda"):
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
model.train()
name = S["optimizer"]
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4) if name == "sgd" else torch.optim.AdamW(
    model.parameters(), lr=1e-4, **({"fused": True} if name == "adamw_torch_fused" else {"foreach": name == "adamw_torch"}))
vplan_settings.apply(model, optimizer)
tokens = torch.zeros(S["micro_batch"], S["sequence"], dtype=torch.int64, device="cuda")
for step in range(3):
    for _ in range(S["accumulation"]):
        with vplan_settings.autocast():
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        loss = None
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

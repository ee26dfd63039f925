# peft LoRA over a frozen bf16 base, plain loop.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
from peft import LoraConfig, get_peft_model
from common import Tokens, llama

model = llama().to(device="cuda", dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for batch in torch.utils.data.DataLoader(Tokens(24), batch_size=4):
    batch = {k: v.cuda() for k, v in batch.items()}
    model(**batch).loss.backward()
    opt.step()
    opt.zero_grad()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

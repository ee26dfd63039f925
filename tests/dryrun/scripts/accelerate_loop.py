# accelerate, bf16, two micro-batches an optimizer step.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
from accelerate import Accelerator
from common import Tokens, llama

acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = llama()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = torch.utils.data.DataLoader(Tokens(40), batch_size=4)
model, opt, loader = acc.prepare(model, opt, loader)
for batch in loader:
    with acc.accumulate(model):
        acc.backward(model(**batch).loss)
        acc.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

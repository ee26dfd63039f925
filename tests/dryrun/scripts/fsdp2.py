# FSDP2 (fully_shard) with mixed precision, one process of several.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from common import Tokens, llama

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = llama()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in torch.utils.data.DataLoader(Tokens(24), batch_size=4):
    model(**{k: v.cuda() for k, v in batch.items()}).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "peak", torch.cuda.max_memory_allocated(),
      torch.cuda.max_memory_reserved())
print("shard", sum(p.to_local().numel() for p in model.parameters()), "of", sum(p.numel() for p in model.parameters()))
dist.destroy_process_group()

# DistributedDataParallel, one process of several.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from common import Tokens, llama

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(llama().cuda())
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = Tokens(128)
for batch in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
    model(**{k: v.cuda() for k, v in batch.items()}).loss.backward()
    opt.step()
    opt.zero_grad()
dist.barrier()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "peak", torch.cuda.max_memory_allocated(),
      torch.cuda.max_memory_reserved())
dist.destroy_process_group()

# Tensor parallel: an MLP split by columns, then by rows, with torch's own plan; 1001 outputs do not divide evenly.
import os
import sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512),
                          torch.nn.Linear(512, 1001)).cuda()
net = parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel(), "3": ColwiseParallel(use_local_output=False)})
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    net(torch.zeros(256, 512, device="cuda")).full_tensor().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "peak", torch.cuda.max_memory_allocated(),
      torch.cuda.max_memory_reserved())
dist.destroy_process_group()

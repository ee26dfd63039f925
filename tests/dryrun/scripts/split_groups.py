# Communicators that are split off the first one (a device is named at the start): two of two ranks, and a subgroup.
import os
import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
rank, world = dist.get_rank(), dist.get_world_size()
net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(net.parameters())
mesh = dist.device_mesh.init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("replicate", "shard"))
some = dist.new_group(list(range(world - 1)))
for step in range(4):
    net(torch.zeros(64, 1024, device="cuda")).sum().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, group=mesh.get_group("shard"))
        dist.all_reduce(p.grad, group=mesh.get_group("replicate"))
    if rank < world - 1:
        dist.all_reduce(net.bias.grad, group=some)
    optimizer.step()
print("rank", rank, "of", world, "peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
dist.destroy_process_group()

# Several ranks of a plain loop that exchange objects, gradients and messages, rightly or, by its argument, wrongly.
#     even | uneven | size | order | fewer | objects | message | breaks | memory | values
import os
import sys
import torch
import torch.distributed as dist

how = sys.argv[1]
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank, world = dist.get_rank(), dist.get_world_size()
net = torch.nn.Linear(512, 768 if how == "uneven" and rank == 2 else 512).cuda()
optimizer = torch.optim.AdamW(net.parameters())
ranks = [None] * world
dist.all_gather_object(ranks, rank)
said = [rank]
dist.broadcast_object_list(said, src=1)
own = [None]
dist.scatter_object_list(scatter_object_output_list=own, scatter_object_input_list=list(range(world)) if rank == 0 else None, src=0)         # named, as torch.distributed.checkpoint does
assert own == [rank]
a, gathered = torch.zeros(10, device="cuda"), torch.zeros(10 * world, device="cuda")
for step in range(3):
    net(torch.zeros(64, 512, device="cuda")).sum().backward()
    for p in net.parameters():
        if how != "uneven":
            dist.all_reduce(p.grad)
    if how == "size" and step == 1:
        dist.all_reduce(torch.zeros(10 + (rank == 2), device="cuda"))
    if how == "order" and step == 1:
        first, then = (dist.all_reduce, (a,)), (dist.all_gather_into_tensor, (gathered, a))
        for call, words in (then, first) if rank == 2 else (first, then):
            call(*words)
    if how == "fewer" and not (rank == 3 and step == 2):
        dist.barrier()
    optimizer.step()
if how == "objects" and rank != 1:
    dist.all_gather_object(ranks, rank)
if how == "message":
    t = torch.zeros(90 if rank == 2 else 100, device="cuda")
    dist.recv(t, rank - 1) if rank % 2 else dist.send(t, rank + 1)
if how == "values":      # a list of rank 0's, which the others look at; of one that the card has worked on nothing is known
    t = torch.tensor([7, 8, 9] if rank == 0 else [-1] * 3, device="cuda")
    dist.broadcast(t, 0)
    assert t.tolist() == [7, 8, 9], t.tolist()
    t = torch.tensor([1, 2] if rank == 0 else [5, 6], device="cuda") + 1
    dist.broadcast(t, src=0)
    assert t.tolist() == [0, 0], t.tolist()
if how == "breaks" and rank == 2:
    raise ValueError("this rank breaks")
if how == "memory" and rank == 1:
    torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
print("rank", rank, "of", world, "met", ranks, "and", said[0], "peak", torch.cuda.max_memory_allocated())

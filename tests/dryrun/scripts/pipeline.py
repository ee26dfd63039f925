# Pipeline parallel with torch's own 1F1B schedule: the first stage embeds, the last has the head and the loss. "shapes": the stages
# are told what they send each other, and do not ask; so one can be played by itself.
import os
import sys
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank, world = dist.get_rank(), dist.get_world_size()
parts = [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)]
if rank == 0:
    parts.insert(0, torch.nn.Embedding(4096, 256))
if rank == world - 1:
    parts.append(torch.nn.Linear(256, 4096))
net = torch.nn.Sequential(*parts).cuda()
told = {}
if sys.argv[1:] == ["shapes"]:
    between = torch.empty(4, 64, 256, device="meta")
    told = {"input_args": (between if rank else torch.empty(4, 64, dtype=torch.long, device="meta"),),
            "output_args": between if rank < world - 1 else torch.empty(4, 64, 4096, device="meta")}
stage = PipelineStage(net, rank, world, torch.device("cuda"), **told)


def loss(out, target):
    return torch.nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())


schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss)
optimizer = torch.optim.AdamW(net.parameters())
ids = torch.ones(32, 64, dtype=torch.long, device="cuda")
for _ in range(3):
    if rank == 0:
        schedule.step(ids)
    elif rank == world - 1:
        schedule.step(target=ids)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
print("rank", rank, "of", world, "peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
dist.destroy_process_group()

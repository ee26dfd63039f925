# DeepSpeed ZeRO in bf16, one process of several; argument 1: the stage.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import deepspeed
import torch
import torch.distributed as dist
from common import Tokens, llama

stage = int(sys.argv[1])
deepspeed.init_distributed("nccl")
model = llama()
n_parameters = sum(p.numel() for p in model.parameters())
engine, opt, loader, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), training_data=Tokens(256),
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
    config={"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": stage, "allgather_bucket_size": 5000000, "reduce_bucket_size": 5000000},
            "zero_allow_untested_optimizer": True})
for i, batch in enumerate(loader):
    engine.backward(engine(**{k: v.to(engine.device) for k, v in batch.items()}).loss)
    engine.step()
    if i == 4:
        break
rank, world = dist.get_rank(), dist.get_world_size()
peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def shard(held, whole):
    """Of so many elements that a rank holds as its part of a tensor, those that are no padding behind the last."""
    assert held * world - whole < world * 16, "more than a part: %d of %d" % (held, whole)
    return max(0, min(held, whole - rank * held))


if stage == 3:
    part = sum(shard(p.ds_tensor.numel(), p.ds_numel) for p in model.parameters())
else:      # the master weights, of all parameters as one
    part = sum(shard(p.numel(), n_parameters) for p in opt.optimizer.param_groups[0]["params"])
sys.stdout.write("rank %d of %d peak %d %d\nshard %d of %d\n" % ((rank, world) + peaks + (part, n_parameters)))      # at once: others write too

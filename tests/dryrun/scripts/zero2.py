# DeepSpeed ZeRO-2 in bf16, one process of several.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import deepspeed
import torch
from common import Tokens, llama

deepspeed.init_distributed("nccl")
model = llama()
engine, opt, loader, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), training_data=Tokens(256),
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
    config={"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": 2, "allgather_bucket_size": 5000000, "reduce_bucket_size": 5000000},
            "zero_allow_untested_optimizer": True})
for i, batch in enumerate(loader):
    engine.backward(engine(**{k: v.to(engine.device) for k, v in batch.items()}).loss)
    engine.step()
    if i == 4:
        break
import torch.distributed as dist
print("rank", dist.get_rank(), "of", dist.get_world_size(), "peak", torch.cuda.max_memory_allocated(),
      torch.cuda.max_memory_reserved())

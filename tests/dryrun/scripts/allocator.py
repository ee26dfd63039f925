# Sizes that grow and shrink, with the allocator's counters after each step; PYTORCH_CUDA_ALLOC_CONF as given.
# Argument 1: per-process memory fraction, or 1.
import random
import sys
import torch

torch.cuda.set_per_process_memory_fraction(float(sys.argv[1]))
random.seed(1)
held = []
for step in range(400):
    try:
        held.append(torch.empty(int(2 ** random.uniform(9, 29)), dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        held = held[len(held) // 2:]
        print(step, "out of memory")
    while len(held) > 40 or (held and random.random() < 0.3):
        held.pop(random.randrange(len(held)))
    if step % 20 == 0:
        s = torch.cuda.memory_stats()
        print(step, s["allocated_bytes.all.current"], s["reserved_bytes.all.current"], s["requested_bytes.all.current"],
              s["segment.all.current"], s["num_alloc_retries"], s["inactive_split_bytes.all.current"])
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

# Allocations that grow and shrink, with PyTorch's own counters after each; PYTORCH_CUDA_ALLOC_CONF as given.
#   python allocator.py FRACTION SEED LARGEST_LOG2        FRACTION 0: no per-process memory fraction is set
# Prints "a ID BYTES = ALLOCATED RESERVED REQUESTED RETRIES OOMS" and "f ID = ...", for allocator_model.py.
import random
import sys
import torch

fraction, seed, largest = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
if fraction:
    torch.cuda.set_per_process_memory_fraction(fraction)
print("device", torch.cuda.get_device_properties(0).total_memory)
random.seed(seed)
held = {}


def show(event):
    s = torch.cuda.memory_stats()
    print(event, "=", s["allocated_bytes.all.current"], s["reserved_bytes.all.current"],
          s["requested_bytes.all.current"], s["num_alloc_retries"], s["num_ooms"])


def drop(name):
    del held[name]
    show("f %d" % name)


for step in range(700):
    size = int(2 ** random.uniform(8, largest)) + 1
    try:
        held[step] = torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    show("a %d %d" % (step, size))
    if step not in held:
        for name in random.sample(sorted(held), len(held) // 2):
            drop(name)
    while len(held) > 60 or (held and random.random() < 0.42):
        drop(random.choice(sorted(held)))
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

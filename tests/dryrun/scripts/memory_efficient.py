# xformers' memory-efficient attention, forward and backward.
import torch
from xformers.ops import memory_efficient_attention

q, k, v = (torch.zeros(2, 512, 8, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True) for _ in range(3))
memory_efficient_attention(q, k, v).sum().backward()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

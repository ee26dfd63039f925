# cuDNN's attention, forward and backward, and what it asked the allocator for. Arguments: B H T D [causal]
import sys
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

b, h, t, d = map(int, sys.argv[1:5])
q, k, v = (torch.zeros(b, h, t, d, dtype=torch.bfloat16, device="cuda", requires_grad=True) for _ in range(3))
torch.cuda.memory._record_memory_history("all", context=None, stacks="python")


def sizes(since=0):
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    return [e["size"] for e in trace if e["action"] == "alloc"][since:]


with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal="causal" in sys.argv)
forward = sizes()
print("forward", *forward)
out.backward(torch.zeros_like(out))
print("backward", *sizes(len(forward)))
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

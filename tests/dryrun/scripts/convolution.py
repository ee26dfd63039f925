# One forward convolution, and what it asked the allocator for. Arguments: N C H W K R STRIDE PAD DTYPE nchw|nhwc
import sys
import torch

n, c, h, w, k, r, stride, pad = map(int, sys.argv[1:9])
dtype = getattr(torch, sys.argv[9])
layout = torch.channels_last if sys.argv[10] == "nhwc" else torch.contiguous_format
x = torch.empty(n, c, h, w, dtype=dtype, device="cuda", memory_format=layout)
filters = torch.empty(k, c, r, r, dtype=dtype, device="cuda", memory_format=layout)
torch.cuda.memory._record_memory_history("all", context=None, stacks="python")
y = torch.nn.functional.conv2d(x, filters, stride=stride, padding=pad)
trace = torch.cuda.memory._snapshot()["device_traces"][0]
print("allocations", *[e["size"] for e in trace if e["action"] == "alloc"])
print("output", y.numel() * y.element_size())

# An LSTM, one step: cuDNN's sizes for it are not known without a device, PyTorch's own path runs.
import torch

net = torch.nn.LSTM(64, 128, 2).cuda()
out, _ = net(torch.randn(20, 8, 64, device="cuda"))
out.sum().backward()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

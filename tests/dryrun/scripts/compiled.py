# torch.compile: Inductor's Triton kernels are compiled for the card and not run. Prints what the script counts.
import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).cuda()
step = torch.compile(lambda x: net(x).square().mean())
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(3):
    loss = step(torch.randn(64, 256, device="cuda"))
    loss.backward()
    opt.step()
    opt.zero_grad()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

# A small residual network, 16-bit autocast, channels last or not, two optimizer steps and an evaluation.
#   python convnet.py [channels_last] [fp32] [benchmark]
import contextlib
import sys
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.one = nn.Conv2d(n, n, 3, padding=1, bias=False)
        self.norm_one = nn.BatchNorm2d(n)
        self.two = nn.Conv2d(n, n, 3, padding=1, bias=False)
        self.norm_two = nn.BatchNorm2d(n)

    def forward(self, x):
        y = torch.relu(self.norm_one(self.one(x)))
        return torch.relu(x + self.norm_two(self.two(y)))


net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.MaxPool2d(2), Block(64), Block(64), nn.Conv2d(64, 128, 3, 2, 1),
                    Block(128), nn.ConvTranspose2d(128, 32, 2, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                    nn.Linear(32, 100)).cuda()
x = torch.randn(16, 3, 128, 128, device="cuda")
if "channels_last" in sys.argv:
    net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
torch.backends.cudnn.benchmark = "benchmark" in sys.argv
cast = contextlib.nullcontext if "fp32" in sys.argv else lambda: torch.autocast("cuda", dtype=torch.float16)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    with cast():
        loss = nn.functional.cross_entropy(net(x), torch.zeros(16, dtype=torch.int64, device="cuda"))
    loss.backward()
    opt.step()
    opt.zero_grad()
net.eval()
with torch.no_grad(), cast():
    net(x)
print("cudnn", torch.backends.cudnn.enabled, torch.backends.cudnn.version())
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

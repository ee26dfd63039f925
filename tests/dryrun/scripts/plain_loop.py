# A plain PyTorch loop with an evaluation and a saved checkpoint. Argument 1: file to save to.
import sys
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, d=512):
        super().__init__()
        self.emb = nn.Embedding(4096, d)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(d, 8, 4 * d, batch_first=True) for _ in range(4)])
        self.head = nn.Linear(d, 4096)

    def forward(self, x):
        x = self.emb(x)
        for b in self.blocks:
            x = b(x)
        return self.head(x)


torch.manual_seed(0)
net = Net().cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
for step in range(8):
    x = torch.randint(0, 4096, (8, 256), device="cuda")
    loss = loss_fn(net(x).flatten(0, 1), x.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    print("step", step, "loss", loss.item())
net.eval()
with torch.no_grad():
    net(torch.randint(0, 4096, (16, 256), device="cuda"))
torch.save(net.state_dict(), sys.argv[1])
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

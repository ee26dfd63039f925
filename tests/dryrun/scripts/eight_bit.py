# bitsandbytes: 8-bit AdamW over a 4-bit (nf4) frozen layer and an int8 one.
import bitsandbytes as bnb
import torch
from torch import nn

frozen = bnb.nn.Linear4bit(512, 512, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4").cuda()
frozen.requires_grad_(False)
eight = bnb.nn.Linear8bitLt(512, 512, bias=False, has_fp16_weights=False, threshold=6.0).cuda()
eight.requires_grad_(False)
net = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).to("cuda", torch.bfloat16)
opt = bnb.optim.AdamW8bit(net.parameters(), lr=1e-3)
for _ in range(3):
    x = torch.randn(32, 512, device="cuda", dtype=torch.bfloat16)
    loss = (net(frozen(x)) + eight(x.half())).float().square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
state = sum(t.numel() * t.element_size() for s in opt.state.values() for t in s.values() if isinstance(t, torch.Tensor))
print("optimizer state", state)
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

# A loop with the arguments people tune. Data from a DataLoader, an evaluation and a checkpoint after each epoch.
import argparse
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import torch
from common import Tokens

p = argparse.ArgumentParser()
p.add_argument("--model", default="loop", choices=("loop", "gpt2", "lora"))
p.add_argument("--batch", type=int, default=4)
p.add_argument("--accum", type=int, default=1)
p.add_argument("--ckpt", type=int, default=0)
p.add_argument("--optim", default="foreach", choices=("foreach", "fused", "forloop"))
p.add_argument("--attention", default="sdpa")
p.add_argument("--out", default="checkpoint.pt")
o = p.parse_args()


class Net(torch.nn.Module):
    def __init__(self, d=512):
        super().__init__()
        self.emb = torch.nn.Embedding(2048, d)
        self.blocks = torch.nn.ModuleList(
            [torch.nn.TransformerEncoderLayer(d, 8, 4 * d, batch_first=True, dropout=0.0) for _ in range(4)])
        self.head = torch.nn.Linear(d, 2048)

    def forward(self, input_ids, labels):
        x = self.emb(input_ids)
        for b in self.blocks:
            x = torch.utils.checkpoint.checkpoint(b, x, use_reentrant=False) if o.ckpt else b(x)
        return torch.nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


if o.model == "loop":
    net = Net()
else:
    from transformers import GPT2Config, GPT2LMHeadModel
    net = GPT2LMHeadModel._from_config(GPT2Config(n_layer=4, n_embd=512, n_head=8, vocab_size=2048, n_positions=256),
                                       attn_implementation=o.attention)
    if o.ckpt:
        net.gradient_checkpointing_enable()
    if o.model == "lora":
        from peft import LoraConfig, get_peft_model
        net = get_peft_model(net.to(torch.bfloat16), LoraConfig(r=8, target_modules=["c_attn"], task_type="CAUSAL_LM"))
        net.enable_input_require_grads()
net = net.cuda()
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3, fused=o.optim == "fused",
                        foreach=o.optim == "foreach")
loader = torch.utils.data.DataLoader(Tokens(8192, 256), o.batch, shuffle=True)
for epoch in range(3):
    net.train()
    for i, x in enumerate(loader):
        out = net(**{k: v.cuda() for k, v in x.items()})
        ((out if o.model == "loop" else out.loss) / o.accum).backward()
        if (i + 1) % o.accum == 0:
            opt.step()
            opt.zero_grad()
    net.eval()
    with torch.no_grad():
        for x in torch.utils.data.DataLoader(Tokens(512, 256), o.batch):
            net(**{k: v.cuda() for k, v in x.items()})
    torch.save(net.state_dict(), o.out)

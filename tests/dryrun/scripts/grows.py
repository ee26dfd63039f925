# A loop that keeps something of every step, by its argument: nothing | graph | metric | cache | longer (batches, nothing kept) |
# lengths (batches of all lengths, and of each something) | ahead (a queue of batches of all lengths, as long as ever).
import sys
import torch

how = sys.argv[1]
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
losses, metric, cache = [], torch.zeros(65536, device="cuda"), {}
rows = {"longer": [64, 128, 192, 256, 320, 384], "lengths": [192, 384, 64, 320, 128, 256], "ahead": [192, 384, 64, 320, 128, 256]}.get(how, [64] * 6)
def fetch(n):
    return torch.zeros(n, 256, device="cuda")


queue = [fetch(n) for n in (64, 128, 192)]
for step in range(6):
    x = torch.zeros(rows[step], 256, device="cuda")
    if how == "ahead":
        queue.append(fetch(rows[step]))
        x = queue.pop(0)
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=how == "graph")
    optimizer.step()
    if how == "graph":
        losses.append(loss)
    if how in ("metric", "lengths"):
        losses.append(metric + loss.detach())
    if how == "cache" and step == 2:
        cache[step] = torch.zeros(1 << 20, device="cuda")

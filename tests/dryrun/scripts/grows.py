# A loop that keeps something of every step, by its argument: nothing | graph | metric | cache | longer (batches, nothing kept).
import sys
import torch

how = sys.argv[1]
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
losses, metric, cache = [], torch.zeros(65536, device="cuda"), {}
for step in range(6):
    x = torch.zeros(64 * (1 + step if how == "longer" else 1), 256, device="cuda")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=how == "graph")
    optimizer.step()
    if how == "graph":
        losses.append(loss)
    if how == "metric":
        losses.append(metric + loss.detach())
    if how == "cache" and step == 2:
        cache[step] = torch.zeros(1 << 20, device="cuda")

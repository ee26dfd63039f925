# A training step captured in a CUDA graph, as PyTorch's notes show it.
import torch

net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(256, 1024, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        opt.zero_grad(set_to_none=True)
        net(x).square().mean().backward()
        opt.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
opt.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = net(x).square().mean()
    loss.backward()
    opt.step()
for _ in range(5):
    graph.replay()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

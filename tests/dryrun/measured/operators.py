# tests/dryrun/measured/operators.py: single operators, the peak of each in MiB.
#   vplan dryrun --device a100-sxm-80gb -- python operators.py ROWS.csv GPU KERNEL
# An equivalent of the loops that the rows of operators.csv were measured with: each operator ten times, the median of
# max_memory_allocated. Prints one JSON line a row of that GPU and kernel: its number in the file and the
# peak. A kernel a process: the first product of a process allocates cuBLAS's workspace, which stays.
import csv
import gc
import json
import sys

import torch

cuda, nn, B16 = torch.cuda, torch.nn, torch.bfloat16
MIB = 2.0 ** 20


def peak(run):
    seen = []
    for _ in range(10):
        cuda.reset_peak_memory_stats()
        run()
        seen.append(cuda.max_memory_allocated() / MIB)
    return sorted(seen)[5]


def fused_linear_cross_entropy(mode, BT, H=4096, V=128256):
    head = nn.Linear(H, V, bias=False, dtype=B16).to("cuda")
    other = nn.Linear(H, V, bias=False, dtype=B16).to("cuda")      # there, the one of the kernel it is compared with
    loss = nn.CrossEntropyLoss()
    x = torch.randn(BT, H, requires_grad=True, dtype=B16, device="cuda")
    target = torch.randint(V, (BT, 1), device="cuda").squeeze(1)

    def full():
        y = loss(head(x), target)
        y.backward()
    return peak(full), other


def mlp(mode, batch, T, act, H=4096, I=11008):
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP
    x = torch.randn(batch, T, H, device="cuda", dtype=B16, requires_grad=True)
    layer = LlamaMLP(config=LlamaConfig(hidden_size=H, intermediate_size=I, hidden_act=act)).to("cuda").to(B16)

    def full():
        y = layer(x)
        y.backward(torch.randn_like(y), retain_graph=True)
    return peak(full if mode == "full" else lambda: layer(x))


def geglu(mode, T):
    return mlp(mode, 8, T, "gelu_pytorch_tanh")


def swiglu(mode, T):
    return mlp(mode, 4, T, "silu")


def fused_linear_jsd(mode, BT, H=4096, V=128256):
    student, teacher, student2, teacher2 = (nn.Linear(H, V, bias=False, dtype=B16, device="cuda") for _ in range(4))
    student.weight.data = student2.weight.data = torch.rand(V, H, device="cuda", dtype=B16)
    teacher.weight.data = teacher2.weight.data = torch.rand(V, H, device="cuda", dtype=B16)
    xs = torch.rand(BT, H, requires_grad=True, dtype=B16, device="cuda")
    xt = torch.rand(BT, H, dtype=B16, device="cuda")
    kl = nn.KLDivLoss(reduction="batchmean", log_target=True)

    def jsd(q, p):                # names live as long as in the published module
        p, q = p.to(torch.float), q.to(torch.float)
        p, q = p.view(-1, p.size(-1)), q.view(-1, q.size(-1))
        m = torch.lerp(torch.exp(p), torch.exp(q), 0.5)
        return (0.5 * kl(torch.log(m), p) + 0.5 * kl(torch.log(m), q)).to(B16)

    def forward():
        student_logits = student(xs)
        teacher_logits = teacher(xt)
        a = torch.log_softmax(student_logits / 1.0, -1)
        b = torch.log_softmax(teacher_logits / 1.0, -1)
        return jsd(a, b)
    return peak(lambda: forward().backward())


def cross_entropy(mode, V, BT=16384):
    x = torch.randn(BT, V, requires_grad=True, device="cuda")
    target = torch.randint(V, (BT, 1), device="cuda").squeeze(1)
    loss = nn.CrossEntropyLoss()

    def full():
        y = loss(x, target)
        y.backward(retain_graph=True)
    return peak(full)


def layer_norm(mode, N, rows=4096):
    other = nn.LayerNorm(N).to("cuda")
    layer = nn.LayerNorm(N, eps=1e-6).to("cuda")
    x = torch.randn(rows, N, device="cuda")
    dy = torch.randn_like(x)
    x.requires_grad_(True)

    def full():
        y = layer(x)
        y.backward(dy, retain_graph=True)
    return peak(full), other


path, gpu, kernel = sys.argv[1:4]
for number, row in enumerate(csv.DictReader(open(path))):
    if row["gpu"] != gpu or row["kernel"] != kernel:
        continue
    got = globals()[kernel](row["mode"], **{row["x_name"]: int(row["x"])})
    got = got[0] if isinstance(got, tuple) else got
    print(json.dumps({"row": number, "peak": got}), flush=True)
    gc.collect()

"""Steps under torch.amp in fp16, with GradScaler's own sequence of scales, for the goldens of some families.

    python fp16_scaler.py GOLDENS NAME=SCALE:STEPS... > tests/golden/fp16_scaler.json

Each golden's model, batch and recipe (tests/golden), trained in fp32 weights under torch.autocast("cpu", float16) with
GradScaler(init_scale=SCALE, growth_interval=3) for STEPS steps: scale, backward, unscale_, clip_grad_norm_, step, update. SCALE is one at which the first
step overflows. A row a step: the loss, the norm before clipping (null where the step was skipped), whether it was skipped, and the
scale after update(). Needs torch 2.11 and transformers 5.17; no test runs it."""

import json
import math
import sys
from pathlib import Path

import safetensors.torch
import torch
import transformers

LR, BETAS, EPS, DECAY, CLIP, INTERVAL = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 3


class Linear(torch.autograd.Function):
    """y = x w' + b in fp16, and dw in fp32."""

    @staticmethod
    def forward(ctx, x, w, b):
        x, half = x.half(), w.half()
        ctx.save_for_backward(x, half)
        ctx.has_bias = b is not None
        return torch.matmul(x, half.t()) + (0 if b is None else b.half())

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.half()
        rows, columns = dy.flatten(0, -2).float(), x.flatten(0, -2).float()
        return torch.matmul(dy, w), rows.t() @ columns, rows.sum(0) if ctx.has_bias else None


def linear(x, w, b=None):
    with torch.autocast("cpu", enabled=False):
        return Linear.apply(x, w, b)


torch.nn.functional.linear = linear
transformers.pytorch_utils.Conv1D.forward = lambda self, x: linear(x, self.weight.t(), self.bias)


def model_of(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    model = getattr(transformers, config.architectures[0]).from_pretrained(folder, config=config, dtype=torch.float32)
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) or "Norm" in type(module).__name__:
            module.register_forward_hook(lambda module, given, out: out.half())
    return model.train()


def optimizer_of(model):
    groups = [{"params": [p for p in model.parameters() if (p.ndim >= 2) == decays], "weight_decay": DECAY if decays else 0.0}
              for decays in (True, False)]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=LR, betas=BETAS, eps=EPS)


def train(folder, scale, steps):
    model, batch = model_of(folder), safetensors.torch.load_file(folder / "batch.safetensors")
    optimizer = optimizer_of(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=INTERVAL)
    rows = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item()
        skipped = not math.isfinite(norm)
        scaler.step(optimizer)
        scaler.update()
        rows.append({"loss": loss.item(), "grad_norm": None if skipped else norm, "skipped": skipped, "scale": scaler.get_scale()})
    return {"init_scale": scale, "steps": rows}


def main():
    folder, cases = Path(sys.argv[1]), [a.replace(":", "=").split("=") for a in sys.argv[2:]]
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "growth_interval": INTERVAL,
                      "families": {name: train(folder / name, float(scale), int(steps)) for name, scale, steps in cases}}, indent=1))


if __name__ == "__main__":
    main()

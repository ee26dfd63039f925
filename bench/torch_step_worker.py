"""The PyTorch half of step_vs_torch.py: one training step for each line on standard input.

Runs in the Python that holds torch. Lines in: `threads N`, `step`, `profile` (a step under torch's profiler). Each is
answered by one line of JSON on standard output; whatever libraries print goes to standard error.

What a careful user of PyTorch writes: transformers' causal model in fp32, attention sdpa, no dropout, cross entropy over
all T next tokens, clip_grad_norm_, AdamW with decay on parameters of two or more dimensions only. With precision bf16-mixed
the forward runs under autocast to bfloat16, weights and optimizer stay fp32. With --compile the model is compiled. With --cuda all of it
is on the card; the answer waits for the loss, which the card computes last."""
import argparse
import array
import json
import os
import resource
import sys
import time

import torch
import transformers


def parse_args():
    p = argparse.ArgumentParser()
    for name in ("--weights", "--tokens", "--recipe"):
        p.add_argument(name, required=True)
    p.add_argument("--seq", type=int, required=True)
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--optimizer", choices=["fused", "foreach", "forloop"], default="fused")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--cuda", action="store_true")
    return p.parse_args()


def load_model(folder):
    from safetensors.torch import load_file
    config = transformers.AutoConfig.from_pretrained(folder)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "dropout"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    assert model.config._attn_implementation == "sdpa", model.config._attn_implementation
    missing, unexpected = model.load_state_dict(load_file(os.path.join(folder, "model.safetensors")), strict=False)
    # A tied head is the token table itself; everything else must have come from the file.
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    if missing:
        model.tie_weights()
        assert model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    return model.train()


def make_optimizer(model, recipe, kind):
    o = recipe["optimizer"]
    assert o["name"] == "adamw"
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": o["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], fused=kind == "fused", foreach=kind == "foreach")


class Trainer:
    def __init__(self, args):
        with open(args.recipe) as f:
            recipe = json.load(f)
        assert recipe["precision"] in ("fp32", "bf16-mixed") and recipe["data"]["kind"] == "tokens-u16" and recipe["schedule"]["type"] == "constant"
        self.device = "cuda" if args.cuda else "cpu"
        self.model = load_model(args.weights).to(self.device)
        self.optimizer = make_optimizer(self.model, recipe, args.optimizer)
        self.forward = torch.compile(self.model) if args.compile else self.model
        self.autocast = torch.autocast(self.device, dtype=torch.bfloat16, enabled=recipe["precision"] == "bf16-mixed")
        self.clip_norm = recipe["clip_norm"]
        self.shape = args.batch, args.seq
        tokens = array.array("H")
        with open(args.tokens, "rb") as f:
            tokens.frombytes(f.read())
        self.tokens = torch.tensor(tokens, dtype=torch.long)   # once: a step takes a view of it
        self.n_steps = 0

    def batch(self):
        n = self.shape[0] * self.shape[1]
        first = self.n_steps * n
        both = self.tokens[first:first + n + 1].to(self.device)
        return both[:n].view(self.shape), both[1:].view(self.shape)

    def step(self):
        tokens, labels = self.batch()
        with self.autocast:
            logits = self.forward(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)).float(), labels.view(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.n_steps += 1
        if self.device == "cuda":
            torch.cuda.synchronize()
        return {"loss": loss.item(), "grad_norm": norm.item()}

    def device_bytes(self):
        """torch's own peaks on the card, and what the driver says is used there by all."""
        if self.device == "cpu":
            return None
        free, total = torch.cuda.mem_get_info()
        return {"allocated_peak": torch.cuda.max_memory_allocated(), "reserved_peak": torch.cuda.max_memory_reserved(), "used_by_all": total - free}

    def libraries(self):
        if self.device == "cpu":
            return {"torch blas": "MKL" if torch.backends.mkl.is_available() else "other", "oneDNN": torch.backends.mkldnn.is_available()}
        return {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name(),
                "tf32": torch.backends.cuda.matmul.allow_tf32}


def profiled_step(trainer):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        answer = trainer.step()
    rows = sorted(p.key_averages(), key=lambda r: -r.self_cpu_time_total)
    return dict(answer, ops=[[r.key, r.count, r.self_cpu_time_total * 1e-6] for r in rows[:25]])


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    args = parse_args()
    torch.manual_seed(0)
    trainer = Trainer(args)

    def reply(answer):
        replies.write(json.dumps(answer) + "\n")
        replies.flush()

    reply({"libraries": dict(trainer.libraries(), python=sys.version.split()[0], torch=torch.__version__, transformers=transformers.__version__,
                             optimizer=f"torch.optim.AdamW {args.optimizer}")})
    for line in sys.stdin:
        words = line.split()
        start_s = time.perf_counter()
        if words[0] == "threads":
            torch.set_num_threads(int(words[1]))
            answer = {"threads": torch.get_num_threads()}
        else:
            answer = trainer.step() if words[0] == "step" else profiled_step(trainer)
        answer["seconds"] = time.perf_counter() - start_s
        answer["device_bytes"] = trainer.device_bytes()
        answer["process_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        reply(answer)


main()

#!/usr/bin/env python3
"""Steps of TRL's GRPOTrainer whose completions the model makes itself, by generate(): rows for the rule of `trainers/hf/hf_generate.c`.

    generated.py OUT.csv [--null build/null] [--only NUMBER...]

The peak of allocated bytes while completions are made, in the first step and in the second, and of both steps that of allocated and of
reserved bytes. Each completion is as long as it may be.
"""
import argparse
import csv
import os

import loops
import play
import rows

COLUMNS = ["model", "precision", "lora", "rank", "load", "optimizer", "micro_batch", "accumulation", "seq", "target_seq"]
MEASURED = ["generate1", "generate2", "allocated", "reserved"]
LIST = [
    ("qwen2.5-0.5b", "bf16-mixed", "none", 0, "none", "adamw_torch_fused", 8, 1, 320, 64),
    ("qwen2.5-0.5b", "bf16-amp", "all-linear", 16, "none", "adamw_torch_fused", 8, 4, 320, 64),
    ("llama-3.2-1b", "bf16-amp", "all-linear", 16, "none", "adamw_torch_fused", 8, 4, 320, 64),
    ("llama-3.2-1b", "bf16-amp", "none", 0, "none", "adamw_8bit", 8, 2, 256, 192),
    ("llama-3.2-1b", "bf16-amp", "all-linear", 16, "nf4-dq", "paged_adamw_8bit", 8, 4, 256, 160),
    ("qwen3-0.6b", "bf16-mixed", "all-linear", 8, "none", "adamw_torch_fused", 4, 4, 512, 128),
    ("tinyllama-1.1b", "bf16-amp", "q_proj+v_proj", 8, "none", "adamw_torch_fused", 8, 2, 400, 200),
]


class Generating(loops.Grpo):
    def __init__(self, accumulation, *of, **options):
        self.peaks = []
        loops.Grpo.__init__(self, *of, gradient_accumulation_steps=accumulation, generation_kwargs={"use_cache": True}, **options)
        self.trainer.current_gradient_accumulation_steps = accumulation

    def make(self, m, tokenizer, **options):
        import torch
        from transformers.generation.utils import GenerationMixin
        trainer = loops.Grpo.make(self, m, tokenizer, **options)
        del trainer._generate_single_turn
        real = trainer._generate_single_turn

        def generate(prompts, *of, **others):
            torch.cuda.reset_peak_memory_stats()
            tokens = iter(range(self.n_completion))
            GenerationMixin._has_unfinished_sequences = lambda *of, **others: next(tokens, None) is not None         # what the card says of that is no number
            real(prompts, *of, **others)
            self.peaks.append(torch.cuda.max_memory_allocated())
            return [[1] * self.n_completion for x in prompts], None
        trainer._generate_single_turn = generate
        return trainer


def measure(row):
    import torch
    r = dict(zip(COLUMNS, row))
    play.choose_attention("sdpa:flash")
    play.PADDED[:] = [True]
    config = dict(rows.NAMED, **rows.MODELS)[r["model"]]
    v = dict(task="clm", precision=r["precision"], attention="sdpa:flash", lora=r["lora"], r=r["rank"], lora_dropout=0, recompute="full", quantised=r["load"], upcast=False, trainer="grpo",
             mask=True, keep_output=0)
    m = play.make_model(v, (config["model_type"], {k: x for k, x in config.items() if k != "model_type"}))
    m.config.use_cache = True
    loop = Generating(r["accumulation"], v, m, r["micro_batch"], completion=r["target_seq"], **rows.optim_of(r["optimizer"]))
    opt, allocated = loop.trainer.create_optimizer(), 0
    batch = play.batch(v, dict(B=r["micro_batch"] * r["accumulation"], S=r["seq"], l=r["target_seq"]))
    for _ in (1, 2):
        for _ in range(r["accumulation"]):
            with loops.yes():
                loop.trainer.training_step(loop.m, batch, None)
        loop.trainer.accelerator.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        allocated = max([allocated, torch.cuda.max_memory_allocated()] + loop.peaks)
        opt.zero_grad(set_to_none=True)
    return dict(zip(MEASURED, loop.peaks + [allocated, torch.cuda.max_memory_reserved()]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    p.add_argument("--only", nargs="*", type=int)
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null), processors=132)
    import torch
    import transformers
    play.quiet()
    torch._C._cuda_getDeviceCount = lambda: 1
    with open(a.out, "w", newline="") as f:
        f.write("# made by tests/oracles/programs/generated.py: torch %s, transformers %s\n" % (torch.__version__.split("+")[0], transformers.__version__))
        out = csv.writer(f, lineterminator="\n")
        out.writerow(COLUMNS + MEASURED)
        for row in [LIST[i] for i in a.only or range(len(LIST))]:
            got = play.in_child(lambda: measure(row))
            if "failed" in got:
                raise SystemExit("%s: %s" % (row, got["failed"]))
            out.writerow(list(row) + [got[x] for x in MEASURED])
            f.flush()


if __name__ == "__main__":
    main()

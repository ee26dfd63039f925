#!/usr/bin/env python3
"""tests/oracles/loader.py: what a DataLoader takes of host memory in runs of transformers' Trainer.

    tests/oracles/loader.py VPLAN PYTHON > tests/golden/loaders/runs.csv

PYTHON has torch, transformers and accelerate. Each row is a run of Trainer on a GPT-2 of one layer, by `vplan dryrun`, so that pinning
has a card to pin for; workers that are spawned by PYTHON alone. Behind each step it waits until nothing comes any more, then reads:

    pinned       torch.cuda.host_memory_stats(): what the host allocator has
    shared       /dev/shm, less what it held before
    own_low/high least and most of a worker's private memory (smaps_rollup), shared memory left out

Of each the most of all steps. fork and spawn are multiprocessing's ways to start a worker."""
import os, subprocess, sys

ROWS = [  # batch, seq, workers, prefetch, pin, accumulation, context
    (8, 1024, 2, 2, 1, 1, "fork"), (8, 1024, 2, 2, 0, 1, "fork"), (8, 1024, 4, 2, 1, 1, "fork"), (8, 1024, 2, 2, 1, 4, "fork"),
    (6, 1000, 2, 3, 1, 1, "fork"), (6, 1000, 2, 3, 0, 1, "fork"), (1, 100, 1, 2, 1, 1, "fork"), (1, 100, 1, 2, 0, 1, "fork"),
    (16, 2048, 4, 4, 1, 1, "fork"), (16, 2048, 3, 1, 0, 2, "fork"), (5, 333, 3, 5, 1, 1, "fork"), (32, 512, 1, 8, 0, 1, "fork"),
    (8, 1024, 2, 2, 0, 1, "spawn"),
]
NAMES = "batch,seq,workers,prefetch,pin,accumulation,context,pinned,shared,own_low,own_high"


class Samples:  # of the module, so that a spawned worker finds it
    def __init__(self, seq):
        self.seq = seq

    def __len__(self):
        return 100000

    def __getitem__(self, i):
        import torch
        return {"input_ids": torch.ones(self.seq, dtype=torch.long), "labels": torch.ones(self.seq, dtype=torch.long)}


def rollup(pid):
    d = {}
    for line in open("/proc/%d/smaps_rollup" % pid):
        p = line.split()
        if len(p) == 3:
            d[p[0][:-1]] = int(p[1]) * 1024
    return d["Private_Clean"] + d["Private_Dirty"]


def held():
    s = os.statvfs("/dev/shm")
    return (s.f_blocks - s.f_bfree) * s.f_frsize


def play(batch, seq, workers, prefetch, pin, accumulation, context):
    import time

    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    most = [0, 0, 1 << 60, 0]
    before = held()

    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, **more):
            time.sleep(1.5)
            children = open("/proc/self/task/%d/children" % os.getpid()).read().split()
            own = [rollup(int(p)) for p in children if b"resource_tracker" not in open("/proc/%s/cmdline" % p, "rb").read()]
            if context == "fork":
                most[0] = max(most[0], torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0))
            most[1] = max(most[1], held() - before)
            most[2] = min([most[2]] + own)
            most[3] = max([most[3]] + own)

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=64, n_head=2, vocab_size=100, n_positions=seq))
    arguments = TrainingArguments(
        "/tmp/vplan-loader", per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_steps=3, report_to=[],
        dataloader_num_workers=workers, dataloader_prefetch_factor=prefetch, dataloader_pin_memory=bool(pin), save_strategy="no",
        logging_strategy="no", disable_tqdm=True, **({} if context == "fork" else {"dataloader_multiprocessing_context": context, "use_cpu": True}))
    Trainer(model, arguments, train_dataset=Samples(seq), callbacks=[Look()]).train()
    print("ROW %d,%d,%d,%d" % tuple(most), flush=True)


def main():
    vplan, python = sys.argv[1:3]
    print(NAMES)
    for row in ROWS:
        words = [str(w) for w in row]
        by = [vplan, "dryrun", "--device", "h100", "--"] if row[-1] == "fork" else []
        p = subprocess.run(by + [python, "-W", "ignore", os.path.abspath(__file__), "--play"] + words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
        found = [line for line in p.stdout.splitlines() if "ROW " in line]
        if not found:
            sys.exit("%s: %s" % (row, p.stdout[-2000:]))
        print(",".join(words) + "," + found[-1].split("ROW ")[1].strip(), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--play":
        w = sys.argv[2:]
        play(*[int(x) for x in w[:6]], w[6])
    else:
        main()

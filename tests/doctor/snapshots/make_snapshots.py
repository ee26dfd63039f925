#!/usr/bin/env python3
"""tests/doctor/snapshots/make_snapshots.py: snapshots of PyTorch's allocator, with what PyTorch itself counted beside them.

    vplan dryrun --budget 1400MiB -- python tests/doctor/snapshots/make_snapshots.py CASE FOLDER

CASE is training, middle or pieces; in a process of its own each, torch 2.11. Written are CASE.pickle, as
torch.cuda.memory._dump_snapshot() does, with the folders of this machine taken out of the frames, and CASE.json: PyTorch's own
counters (memory_stats) at that moment. The protocol differs by case, so that all of them are read."""
import json
import pickle
import re
import sys

import torch

case, folder = sys.argv[1:3]
PROTOCOL = {"training": 4, "middle": 2, "pieces": 5}[case]
torch.cuda.memory._record_memory_history(max_entries=100000)


def make_layer(n):
    return torch.nn.Linear(n, n).cuda()


def train(n_steps):
    layers = [make_layer(1024) for _ in range(3)]
    optimizer = torch.optim.AdamW([p for layer in layers for p in layer.parameters()], foreach=False)

    def step():
        x = torch.zeros(2048, 1024, device="cuda")
        for layer in layers:
            x = layer(x).relu()
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(n_steps):
        step()
    return layers, optimizer


def make_blocks(n, mib):
    return [torch.empty(mib << 20, dtype=torch.uint8, device="cuda") for _ in range(n)]


def in_pieces():
    held = make_blocks(80, 9)  # two to a segment of 20 MiB
    held[::2] = [None] * 40
    try:
        make_blocks(1, 400)
    except torch.OutOfMemoryError as error:
        return held, str(error)


kept = in_pieces() if case == "pieces" else train(2)
snapshot = torch.cuda.memory._snapshot()
stats = torch.cuda.memory_stats()
if case == "middle":  # what a recorder of 60 entries would still have
    snapshot["device_traces"] = [events[-60:] for events in snapshot["device_traces"]]


def clean(value):
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(clean(v) for v in value)
    if isinstance(value, str):
        return re.sub(r"^.*/(site-packages|probe)/", r"/opt/\1/", re.sub(r"^.*/make_snapshots\.py$", "train.py", value))
    return value


with open("%s/%s.pickle" % (folder, case), "wb") as f:
    pickle.dump(clean(snapshot), f, protocol=PROTOCOL)
keys = ["allocated_bytes.all.current", "allocated_bytes.all.peak", "requested_bytes.all.current", "requested_bytes.all.peak", "reserved_bytes.all.current",
        "inactive_split_bytes.all.current", "segment.all.current", "num_ooms"]
with open("%s/%s.json" % (folder, case), "w") as f:
    json.dump({"torch": torch.__version__, "stats": {k: stats[k] for k in keys}, "message": kept[1] if case == "pieces" else ""}, f, indent=1)
    f.write("\n")

#!/usr/bin/env python3
"""Bytes that one block's calls move through a card's memory, by token and element of the hidden size, from a plan's own calls.

    vplan plan gpt2 --device h100 --precision bf16-mixed --seq 1024 --global-batch 64 --micro-batch 64 --recompute none -o gpt2.json
    bench/pass_bytes.py --hidden 768 --commit SHA --out bench/results gpt2.json

A figure is bytes / (tokens x hidden) of the activations and their gradients that a call reads and writes, each operand once; and of what CUDA's
kernels read again (AGAIN), with what a product reads to add it. Parameters, their gradients and workspaces are not among them: they do not grow with tokens. `passes` are calls that are
neither a product nor attention, residuals that a product adds, and what is read again: what fusing could save. Attention moves its operands about once (kernels/cuda/attention_tiles.h)."""
import collections
import csv
import io
import json
import sys

from bench_common import fail, output, parser, program, write_results

# Operands that a kernel of ours reads a second time, by their places: kernels/cuda/bias_grad.cu adds up dy beside the product, where there is a bias.
AGAIN = {"linear_bwd_weight": (1,)}
OF_TOKENS = ("activations", "temporaries")
WHOLE = ("linear_fwd", "linear_add_fwd", "linear_bwd_input", "linear_bwd_weight", "attention_fwd", "attention_bwd")


def table(vplan, plan, what):
    return list(csv.DictReader(io.StringIO(output([vplan, "explain", plan, what]))))


def numbers(text):
    return [int(n) for n in text.split(";") if n]


def calls_of_block(vplan, plan, block):
    """(kernel, bytes of tokens' operands, bytes read again), of one micro-step."""
    size = {int(b["buffer"]): int(b["bytes"]) * (b["component"] in OF_TOKENS) for b in table(vplan, plan, "--buffers")}
    for step in table(vplan, plan, "--program"):
        if step["block"] != block or step["micro_step"] != "0":
            continue
        reads, writes = numbers(step["reads"]), numbers(step["writes"])
        again = AGAIN.get(step["op"], ())
        if step["op"] == "linear_bwd_weight" and sum(size[w] == 0 for w in writes) < 3:  # dW and its workspace, without a bias's gradient
            again = ()
        added = size[reads[-1]] if step["op"] == "linear_add_fwd" else 0  # x w b added
        yield step["phase"], step["op"], sum(size[n] for n in reads + writes) - added, sum(size[reads[k]] for k in again) + added


def main():
    p = parser(__doc__)
    p.add_argument("--hidden", type=int, required=True)
    p.add_argument("--block", default="h.1", help="(h.1)")
    p.add_argument("plan")
    args = p.parse_args()
    plan = json.load(open(args.plan))
    tokens = plan["buckets"][0]["micro_batch"] * plan["buckets"][0]["seq"]
    once, again, n = collections.Counter(), collections.Counter(), collections.Counter()
    for phase, op, bytes_once, bytes_again in calls_of_block(program(args, "vplan"), args.plan, args.block):
        once[phase, op] += bytes_once
        again[phase, op] += bytes_again
        n[phase, op] += 1
    if not once:
        fail("no calls of block %s in %s" % (args.block, args.plan))
    share = 1 / (tokens * args.hidden)
    rows = [{"name": "%s %s" % key, "calls": n[key], "bytes_per_token_and_element": round(once[key] * share, 2),
             "read_again": round(again[key] * share, 2), "predicted": None, "measured": None, "raw_seconds": []} for key in once]
    passes = sum(share * (again[key] + once[key] * (key[1] not in WHOLE)) for key in once)
    rows.append({"name": "passes", "calls": None, "bytes_per_token_and_element": round(passes, 2), "read_again": None, "predicted": None, "measured": None,
                 "raw_seconds": []})
    rows.append({"name": "all", "calls": None, "bytes_per_token_and_element": round(share * sum((once + again).values()), 2), "read_again": None,
                 "predicted": None, "measured": None, "raw_seconds": []})
    for row in rows:
        print("%-36s %6s %8.2f %8s" % (row["name"], row["calls"] or "", row["bytes_per_token_and_element"], "" if row["read_again"] is None else row["read_again"]))
    path = write_results(args, "pass-bytes", plan["device"], {}, {}, {"model": plan["model"]["name"], "block": args.block, "hidden": args.hidden, "tokens": tokens},
                         rows=rows)
    print("written to", path)


if __name__ == "__main__":
    sys.exit(main())

# tests/allocator/record.py: PyTorch's own counters after every event, as a trace (README.md has the format).
#   python record.py OUT --program TRACE [--fraction F]            the allocations and frees of another trace
#   python record.py OUT --random SEED [--events N] [--largest LOG2] [--streams N] [--fraction F] [--hold N]
# To be run with a torch that knows a device: a GPU, or under `vplan dryrun --`. The settings are PYTORCH_ALLOC_CONF
# (PYTORCH_CUDA_ALLOC_CONF before torch 2.9), as always. A fraction is set_per_process_memory_fraction(F).
import argparse
import gzip
import io
import os
import random

import torch

FIELDS = (("A", "allocated_bytes"), ("C", "active_bytes"), ("R", "reserved_bytes"), ("Q", "requested_bytes"),
          ("I", "inactive_split_bytes"), ("N", "segment"))
COUNTS = (("D", "num_device_alloc"), ("F", "num_device_free"), ("T", "num_alloc_retries"), ("O", "num_ooms"))


def counters():
    s = torch._C._cuda_memoryStats(0)
    out = {letter: s[name]["all"]["current"] for letter, name in FIELDS}
    out.update({letter: s[name] for letter, name in COUNTS})
    return out


class Recorder:
    def __init__(self, out, streams):
        self.out, self.held, self.last = out, {}, None
        self.streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(streams - 1)]
        self.last = counters()

    def event(self, text):
        now = counters()
        changed = " ".join("%s%+d" % (k, now[k] - self.last[k]) for k in now if now[k] != self.last[k])
        self.out.write("%s = %s\n" % (text, changed))
        self.last = now

    def alloc(self, name, size, stream=0):
        try:
            if stream:
                with torch.cuda.stream(self.streams[stream]):
                    t = torch.empty(size, dtype=torch.uint8, device="cuda")
            else:
                t = torch.empty(size, dtype=torch.uint8, device="cuda")
            self.held[name] = t
        except torch.OutOfMemoryError:
            pass
        self.event("a %s %d%s" % (name, size, " %d" % stream if stream else ""))
        return name in self.held

    def free(self, name):
        if self.held.pop(name, None) is not None:
            self.event("f %s" % name)

    def use(self, name, stream):
        self.held[name].record_stream(self.streams[stream])
        self.event("r %s %d" % (name, stream))

    def empty_cache(self):
        torch.cuda.empty_cache()
        self.event("e")


def play(recorder, path):
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as f:
        for line in f:
            words = line.split()
            if words and words[0] == "a" and int(words[2]):
                recorder.alloc(words[1], int(words[2]))
            elif words and words[0] == "f":
                recorder.free(words[1])


def wander(recorder, args):
    rng, sizes = random.Random(args.random), [512]

    def size():
        if rng.random() < 0.3:
            return rng.choice(sizes)
        kind = rng.random()
        low, high = (0, 14) if kind < 0.25 else (9, 20.2) if kind < 0.6 else (19.8, 24) if kind < 0.85 else (23, args.largest)
        n = int(2 ** rng.uniform(low, high)) + 1
        if rng.random() < 0.2:
            n = -(-n // 2097152) * 2097152 + rng.choice((-512, 0, 0, 1, 512))
        sizes.append(n)
        return n

    step = 0
    while step < args.events:
        step += 1
        if not recorder.alloc(step, size(), rng.randrange(args.streams)):
            for name in rng.sample(sorted(recorder.held), len(recorder.held) // 2):
                recorder.free(name)
        names = sorted(recorder.held)
        if names and args.streams > 1 and rng.random() < 0.25:
            recorder.use(rng.choice(names), rng.randrange(args.streams))
        if rng.random() < 0.004:
            recorder.empty_cache()
        if rng.random() < 0.01:
            for name in rng.sample(names, len(names) * 3 // 4):
                recorder.free(name)
        while len(recorder.held) > args.hold or (recorder.held and rng.random() < 0.42):
            recorder.free(rng.choice(sorted(recorder.held)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--program")
    parser.add_argument("--random", type=int)
    parser.add_argument("--events", type=int, default=700)
    parser.add_argument("--largest", type=float, default=26.5)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--hold", type=int, default=60)
    parser.add_argument("--fraction", type=float)
    args = parser.parse_args()
    total = torch.cuda.get_device_properties(0).total_memory
    free, _ = torch.cuda.mem_get_info()
    conf = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    if args.fraction:
        torch.cuda.set_per_process_memory_fraction(args.fraction)
    with gzip.GzipFile(args.out, "wb", mtime=0) as raw:
        out = io.TextIOWrapper(raw)
        out.write("# vplan allocator trace 2\n# torch %s, %s\n" % (
            torch.__version__, "events of %s" % os.path.basename(args.program) if args.program else "random events, seed %d" % args.random))
        # the allowance is what PyTorch computes: fraction x total, rounded down
        out.write("conf %s\ndevice %d %d %d\n" % (conf, total, total - free, int(args.fraction * total) if args.fraction else 0))
        recorder = Recorder(out, args.streams)
        assert not any(recorder.last.values()), "the allocator is not new"
        play(recorder, args.program) if args.program else wander(recorder, args)
        s = torch._C._cuda_memoryStats(0)
        out.write("peak %s\n" % " ".join("%s%d" % (letter, s[name]["all"]["peak"]) for letter, name in FIELDS))
        out.flush()
    print("recorded", args.out, recorder.last)


main()

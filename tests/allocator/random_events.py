# tests/allocator/random_events.py: random events under random settings, with the counters of tests/dryrun/allocator_model.py.
#   python random_events.py SEED [EVENTS]: a trace to standard output (README.md has the format)
# The model is independent: it shares no code with what the trace is for, and looks for blocks the plain way.
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "dryrun"))
from allocator_model import MIB, NONE, Allocator  # noqa: E402

FIELDS = "ACRQITO"


def draw(rng):
    """Settings as text for the one side, as arguments for the other."""
    conf, args = [], {}
    if rng.random() < 0.4:
        conf.append("expandable_segments:True")
        args["expandable"] = True
    segment = rng.choice((20, 20, 20, 12, 34) if args else (20, 20, 20, 11, 34))
    if segment != 20:
        conf.append("large_segment_size_mb:%d" % segment)
    args["large_segment"] = segment * MIB
    if rng.random() < 0.4:
        split = segment + rng.choice((0, 1, 2, 10, 40))
        conf.append("max_split_size_mb:%d" % split)
        args["max_split"] = split * MIB
        if rng.random() < 0.4:
            args["rounding"] = (segment + rng.choice((0, 3, 30))) * MIB
            conf.append("max_non_split_rounding_mb:%d" % (args["rounding"] // MIB))
    if rng.random() < 0.2:
        divisions = 2 ** rng.randrange(0, 8)
        conf.append("roundup_power2_divisions:%d" % divisions)
        args["roundup"] = [divisions] * 16
    elif rng.random() < 0.3:
        at = sorted(rng.sample(range(0, 16), rng.randrange(1, 6)))
        values, words = [0] * 16, []
        for n, i in enumerate(at):
            value = rng.choice((0, 1, 2, 4, 8))
            words.append("%d:%d" % (2 ** i, value))
            for k in range(0 if n == 0 else i, i + 1):
                values[k] = value
        if rng.random() < 0.5:
            value = rng.choice((0, 2, 16))
            words.append(">:%d" % value)
            values[at[-1] + 1:] = [value] * (15 - at[-1])
        conf.append("roundup_power2_divisions:[%s]" % ",".join(words))
        args["roundup"] = values
    if rng.random() < 0.3:
        args["gc"] = rng.choice((0.2, 0.5, 0.8, 0.95))
        conf.append("garbage_collection_threshold:%s" % args["gc"])
    total = rng.choice((200, 500, 1500, 6000)) * MIB + rng.choice((0, 777))
    others = rng.choice((0, 33 * MIB + 5))
    allowed = rng.choice((0, 0, total // 2, total * 9 // 10))
    lag = rng.random() < 0.5
    args.update(device=total - others, total=total, lag=lag, allowed=allowed or NONE)
    rng.shuffle(conf)
    return "conf %s\ndevice %d %d %d %d" % (rng.choice((",", " , ")).join(conf), total, others, allowed, lag), args


def main():
    rng = random.Random(int(sys.argv[1]))
    events = int(sys.argv[2]) if len(sys.argv) > 2 else 400
    head, args = draw(rng)
    model, streams, hold, largest = Allocator(**args), rng.choice((1, 1, 2, 4)), rng.choice((5, 30, 200)), rng.uniform(21, 27)
    out = ["# vplan allocator trace 2", "# random events, seed %s" % sys.argv[1], head, "fields " + FIELDS]
    last, sizes, held = dict.fromkeys(FIELDS, 0), [512, MIB, MIB + 1, 10 * MIB], []

    def event(text):
        now = dict(zip(FIELDS, (model.allocated, model.active, model.reserved, model.requested, model.inactive_split(),
                                model.retries, model.ooms)))
        out.append("%s = %s" % (text, " ".join("%s%+d" % (k, now[k] - last[k]) for k in FIELDS if now[k] != last[k])))
        last.update(now)

    for n in range(events):
        size = rng.choice(sizes) if rng.random() < 0.3 else int(2 ** rng.uniform(0, rng.choice((20.1, largest)))) + 1
        sizes.append(size)
        stream = rng.randrange(streams)
        if model.malloc(n, size, stream):
            held.append(n)
        event("a %d %d %d" % (n, size, stream))
        if streams > 1 and held and rng.random() < 0.3:
            name, stream = rng.choice(held), rng.randrange(streams)
            model.record_stream(name, stream)
            event("r %d %d" % (name, stream))
        if rng.random() < 0.1:
            stream = rng.randrange(streams)
            model.stream_done(stream)
            event("d %d" % stream)
        if rng.random() < 0.01:
            model.release_all()
            event("e")
        few = 0 if n not in held or rng.random() < 0.01 else hold
        while len(held) > few or (held and rng.random() < 0.4):
            name = held.pop(rng.randrange(len(held)))
            model.free(name)
            event("f %d" % name)
    print("\n".join(out))


main()

"""Timing kernels on the card: events around repeats, inputs rotated so that the cache does not answer for memory."""

WARM_UPS = 3
TARGET_S = 0.05               # device seconds spent on the repeats of one row
LEAST, MOST = 7, 50           # repeats kept; each raw value is one repeat
SHORT_S = 50e-6               # shorter calls are timed several to a pair of events: an event costs a few microseconds


def measure(call, sets, target_s=TARGET_S):
    """Seconds per call, one number a repeat. call(one of sets) enqueues the work; sets are rotated."""
    import torch
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    n = 0

    def batch(count):
        nonlocal n
        begin.record()
        for _ in range(count):
            call(sets[n % len(sets)])
            n += 1
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / count
    for _ in range(WARM_UPS):
        batch(1)
    once = min(batch(1), batch(1))
    inner = 1 if once >= SHORT_S else max(1, int(2 * SHORT_S / max(once, 1e-6)))
    repeats = max(LEAST, min(MOST, int(target_s / max(once * inner, 1e-6))))
    return [batch(inner) for _ in range(repeats)]


def median(values):
    v = sorted(values)
    return (v[len(v) // 2] + v[(len(v) - 1) // 2]) / 2


def copies_past_cache(bytes_of_one, l2_bytes, at_most=8):
    """How many input sets make the whole several times the L2 cache, so that each call reads from memory."""
    return max(1, min(at_most, -(-4 * l2_bytes // max(1, bytes_of_one))))

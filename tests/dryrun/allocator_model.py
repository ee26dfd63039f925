# tests/dryrun/allocator_model.py: an independent model of PyTorch's caching allocator, to check a dry run by.
#   python tests/dryrun/allocator_model.py SERIES [expandable] [max_split=BYTES] [gc=FRACTION] [allowed=BYTES]
#          [device=BYTES] [total=BYTES] [large_segment=BYTES] [rounding=BYTES]
# SERIES is what scripts/allocator.py printed: allocations and frees, and PyTorch's own counters after each. The
# model is given the events and must come to the same counters after every one. Written from the allocator's
# documented behaviour; shares no code with PyTorch or with vplan. tests/allocator/random_events.py draws events for it.
#   python tests/dryrun/allocator_model.py --trace FILE: a trace with the segments it took ("S BYTES", "s BYTES")
import bisect
import sys

KIB, MIB = 1 << 10, 1 << 20
SMALL, SMALL_SEGMENT, MIN_LARGE, ROUND = MIB, 2 * MIB, 10 * MIB, 2 * MIB
NONE = 1 << 62
TOP = 1 << 45


class Block:
    """A piece of a segment. Blocks of one segment are linked by address."""

    def __init__(self, pool, at, size, mapped=True, segment=None):
        self.pool, self.at, self.size, self.mapped, self.segment = pool, at, size, mapped, segment
        self.prev = self.next = None
        self.used, self.asked, self.since = False, 0, 0
        self.uses, self.waits = set(), 0    # other streams it is used on; those that are not past it yet

    def free(self):
        return not self.used and not self.waits

    def key(self):
        return (self.size, self.at)

    def alone(self):
        return self.prev is None and self.next is None


class Pool:
    def __init__(self, small, searches):
        self.small, self.free, self.unmapped, self.searches = small, [], [], searches

    def put(self, block):
        block.since = self.searches[self.small]
        bisect.insort(self.free, block, key=Block.key)

    def take(self, block):
        i = bisect.bisect_left(self.free, block.key(), key=Block.key)
        assert self.free[i] is block
        del self.free[i]


class Allocator:
    def __init__(self, expandable=False, max_split=NONE, gc=0.0, allowed=NONE, device=NONE, total=0, large_segment=20 * MIB,
                 rounding=0, roundup=None, lag=False):
        self.total = total or device        # what the card calls its total: sizes the range of addresses
        self.expandable, self.max_split, self.gc, self.allowed, self.device = expandable, max_split, gc, allowed, device
        self.large_segment, self.rounding = large_segment, rounding or large_segment
        self.roundup = roundup or [0] * 16  # divisions for sizes from 2^(20 + i) on
        self.lag = lag                      # whether streams are past a use only when stream_done() says so
        self.searches, self.pools = {True: 0, False: 0}, {}
        self.queues, self.passed = {}, []   # blocks that streams must pass, and that they have passed
        self.live, self.segments = {}, []
        self.reserved = self.allocated = self.requested = self.retries = self.ooms = self.n_segments = self.active = 0
        self.ranges = {}                    # what is given out: address -> bytes

    def pool(self, stream, small):
        if (stream, small) not in self.pools:
            self.pools[stream, small] = Pool(small, self.searches)
        return self.pools[stream, small]

    def inactive_split(self):
        return sum(b.size for pool in self.pools.values() for b in pool.free if b.segment is None and not b.alone())

    # ---- segments

    def fresh(self, bytes, reserved=False):
        """Where the driver puts it: from 32 MiB on as high as it fits, on a multiple of that; else as low."""
        taken = sorted(self.ranges.items())
        if bytes >= 32 * MIB and not reserved:
            at = (TOP - bytes) // (32 * MIB) * (32 * MIB)
            for a, n in reversed(taken):
                if a < at + bytes and at < a + n:
                    at = (a - bytes) // (32 * MIB) * (32 * MIB)
        else:
            at = 0
            for a, n in taken:
                if a < at + bytes and at < a + n:
                    at = a + n
        self.ranges[at] = bytes
        return at

    def got(self, bytes):
        self.reserved += bytes
        self.segments.append(bytes)

    def lost(self, bytes):
        self.reserved -= bytes
        self.segments.append(-bytes)

    def release(self, block):
        block.pool.take(block)
        self.n_segments -= 1
        del self.ranges[block.at]
        self.lost(block.size)

    def room(self, bytes):
        return self.reserved + bytes <= self.device

    # ---- expandable segments: a long range of addresses, backed piece by piece

    def map(self, block, size):
        """Back the front of an unmapped block with whole pieces; False when the device is full."""
        unit = SMALL_SEGMENT if block.pool.small else self.large_segment
        size = -(-size // unit) * unit
        if not self.room(size):
            return False
        block.pool.unmapped.remove(block)
        block.mapped = True
        if size < block.size:
            rest = Block(block.pool, block.at + size, block.size - size, False, block.segment)
            self.link(block, rest)
            block.pool.unmapped.append(rest)
            block.size = size
        self.got(size)
        self.merge(block, block.prev)
        self.merge(block, block.next)
        block.pool.put(block)
        return True

    def unmap(self, block):
        unit = SMALL_SEGMENT if block.pool.small else self.large_segment
        base = block.segment
        first = base + -(-(block.at - base) // unit) * unit
        last = base + (block.at + block.size - base) // unit * unit
        if first >= last:
            return
        block.pool.take(block)
        if first > block.at:
            before = Block(block.pool, block.at, first - block.at, True, base)
            before.prev, before.next = block.prev, block
            if block.prev:
                block.prev.next = before
            block.prev = before
            block.pool.put(before)
        if block.at + block.size > last:
            after = Block(block.pool, last, block.at + block.size - last, True, base)
            self.link(block, after)
            block.pool.put(after)
        block.at, block.size, block.mapped = first, last - first, False
        self.lost(block.size)
        self.merge(block, block.prev)
        self.merge(block, block.next)
        block.pool.unmapped.append(block)

    def expand(self, pool, size):
        best = None
        for u in sorted(pool.unmapped, key=lambda b: b.at):
            c = u.prev if u.prev and u.prev.free() else u
            have, b = 0, c
            while b and b.free() and have < size:
                have, b = have + b.size, b.next
            if have >= size:
                best = c
                break
        if best is None:
            unit = SMALL_SEGMENT if pool.small else self.large_segment
            bytes = -(-(self.total + self.total // 8) // unit) * unit
            at = self.fresh(bytes, reserved=True)
            best = Block(pool, at, bytes, False, at)
            pool.unmapped.append(best)
            self.n_segments += 1
        if not best.mapped and not self.map(best, min(best.size, size)):
            return None
        while best.size < size:
            following = best.next
            if not self.map(following, min(size - best.size, following.size)):
                return None
            best = following
        pool.take(best)
        return best

    # ---- blocks

    def link(self, block, new):
        new.prev, new.next = block, block.next
        if block.next:
            block.next.prev = new
        block.next = new

    def merge(self, block, other):
        """Take a free neighbour into block."""
        if other is None or not other.free() or other.mapped != block.mapped:
            return
        if other.mapped:
            other.pool.take(other)
        else:
            other.pool.unmapped.remove(other)
        if other is block.prev:
            block.at = other.at
            block.prev = other.prev
            if block.prev:
                block.prev.next = block
        else:
            block.next = other.next
            if block.next:
                block.next.prev = block
        block.size += other.size

    def find(self, pool, size):
        if self.gc and self.allowed != NONE:
            self.searches[pool.small] += 1
        i = bisect.bisect_left(pool.free, (size, -1), key=Block.key)
        if i == len(pool.free):
            return None
        if self.expandable:      # how far a block can grow counts as its size
            def reach(b):
                return b.size + (b.next.size if b.next and not b.next.mapped else 0)
            j = i
            while not pool.free[i].alone() and j + 1 < len(pool.free) and reach(pool.free[j + 1]) < reach(pool.free[i]):
                j += 1
                i = j
        block = pool.free[i]
        if size < self.max_split <= block.size:
            return None
        if size >= self.max_split and block.size >= size + self.rounding:
            return None
        pool.take(block)
        return block

    def collect_garbage(self):
        threshold = int(self.gc * self.allowed)
        if self.reserved <= threshold:
            return
        target, freed = self.reserved - threshold, 0
        large = [pool for pool in self.pools.values() if not pool.small]

        def age(b):
            return self.searches[False] - b.since
        ages = [age(b) for pool in large for b in pool.free if b.alone()]
        total, n, went = sum(ages), len(ages), True
        while freed < target and went and n > 0:
            limit, went = total / n, False
            for b in [b for pool in large for b in pool.free]:
                if b.alone() and age(b) >= limit:
                    went, freed, total, n = True, freed + b.size, total - age(b), n - 1
                    self.release(b)

    def segment(self, pool, size, bytes):
        if self.allowed != NONE and self.reserved + bytes > self.allowed:
            return None
        if self.expandable:
            return self.expand(pool, size)
        if not self.room(bytes):
            return None
        self.got(bytes)
        self.n_segments += 1
        return Block(pool, self.fresh(bytes), bytes)

    def release_large(self, pool, size):
        """With max_split: one unsplit block that is large enough, else the largest until there is enough."""
        if self.max_split == NONE or self.expandable:
            return False
        size = max(size, self.max_split)
        i = bisect.bisect_left(pool.free, (size, -1), key=Block.key)
        if i < len(pool.free):
            self.release(pool.free[i])
            return True
        freed = 0
        while pool.free and freed < size and pool.free[-1].size >= self.max_split:
            freed += pool.free[-1].size
            self.release(pool.free[-1])
        return freed >= size

    def release_all(self):
        for stream in list(self.queues):
            self.stream_done(stream)
        self.take_back()
        for _, pool in sorted(self.pools.items(), key=lambda item: (item[0][1], item[0][0])):
            blocks = list(pool.free)
            for b in blocks:
                if b.segment is None and b.alone():
                    self.release(b)
            for b in blocks:
                if b.segment is not None:
                    self.unmap(b)
                    if b.alone() and not b.mapped:
                        pool.unmapped.remove(b)
                        self.n_segments -= 1

    def rounded(self, asked):
        divisions = self.roundup[min(max(asked.bit_length() - 1 - 20, 0), 15)]
        if divisions > 1 and asked > 512 * divisions:
            low = 1 << (asked.bit_length() - 1)     # the steps from this power of two to the next
            return min(s for s in (low + k * low // divisions for k in range(divisions + 1)) if s >= asked)
        return max(512, -(-asked // 512) * 512)

    def malloc(self, id, asked, stream=0):
        """True, or False for out of memory."""
        if not self.lag:
            for s in list(self.queues):
                self.stream_done(s)
        self.take_back()
        size = self.rounded(asked)
        pool = self.pool(stream, size <= SMALL)
        bytes = SMALL_SEGMENT if size <= SMALL else self.large_segment if size < MIN_LARGE else -(-size // ROUND) * ROUND
        block = self.find(pool, size)
        if block is None:
            if self.gc and self.allowed != NONE:
                self.collect_garbage()
            block = self.segment(pool, size, bytes)
            if block is None and self.release_large(pool, size):
                block = self.segment(pool, size, bytes)
            if block is None:
                self.release_all()
                self.retries += 1
                block = self.segment(pool, size, bytes)
            if block is None:
                self.ooms += 1
                return False
        rest = block.size - size
        if rest >= 512 if pool.small or self.expandable else size < self.max_split and rest > SMALL:
            tail = Block(pool, block.at + size, rest, True, block.segment)
            block.size = size
            self.link(block, tail)
            pool.put(tail)
        block.used, block.asked = True, asked
        self.live[id] = block
        self.allocated += block.size
        self.active += block.size
        self.requested += asked
        return True

    def record_stream(self, id, stream):
        block = self.live[id]
        if self.pools.get((stream, block.pool.small)) is not block.pool:
            block.uses.add(stream)

    def stream_done(self, stream):
        self.passed += self.queues.pop(stream, [])

    def take_back(self):
        passed, self.passed = self.passed, []
        for block in passed:
            block.waits -= 1
            if not block.waits:
                self.free_block(block)

    def free(self, id):
        block = self.live.pop(id)
        self.allocated -= block.size
        block.used, block.waits = False, len(block.uses)
        for stream in sorted(block.uses):
            self.queues.setdefault(stream, []).append(block)
        block.uses = set()
        if not block.waits:
            self.free_block(block)

    def free_block(self, block):
        self.active -= block.size
        self.requested -= block.asked
        self.merge(block, block.prev)
        self.merge(block, block.next)
        block.pool.put(block)


def check_series(lines, allocator):
    """Events 'a ID BYTES', 'f ID', each with '= ALLOCATED RESERVED REQUESTED RETRIES OOMS' behind it."""
    n = 0
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0] not in ("a", "f"):
            continue
        if words[0] == "a":
            allocator.malloc(words[1], int(words[2]))
        else:
            allocator.free(words[1])
        want = [int(x) for x in words[words.index("=") + 1:]]
        got = [allocator.allocated, allocator.reserved, allocator.requested, allocator.retries, allocator.ooms]
        n += 1
        if want != got:
            return "line %d: %s: the model has %s" % (number, line.strip(), got)
    return "%d events, counters equal after each; %d retries, %d out of memory, peak segments %d" % (
        n, allocator.retries, allocator.ooms, max([0] + allocator.segments)) if n else "no events"


def check_trace(lines, allocator):
    """'S BYTES' and 's BYTES' stand before the allocation that takes or returns a segment."""
    n, due = 0, []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words and words[0] in ("S", "s"):
            due.append(int(words[1]) * (1 if words[0] == "S" else -1))
        elif words and words[0] == "a":
            allocator.segments.clear()
            allocator.malloc(words[1], int(words[2]))
            if allocator.segments != due:
                return "line %d: %s: segments %s, the model has %s" % (number, line.strip(), due, allocator.segments)
            n, due = n + len(due), []
        elif words and words[0] == "f":
            allocator.free(words[1])
    return "%d segments, equal after each" % n


def main():
    if sys.argv[1] == "--trace":
        with open(sys.argv[2]) as f:
            text = check_trace(f, Allocator())
        print(text)
        return 0 if "equal after each" in text else 1
    options = {"expandable": False}
    for word in sys.argv[2:]:
        name, _, value = word.partition("=")
        options[name] = True if name == "expandable" else float(value) if name == "gc" else int(value)
    with open(sys.argv[1]) as f:
        text = check_series(f, Allocator(**options))
    print(text)
    return 0 if "equal after each" in text else 1


if __name__ == "__main__":
    sys.exit(main())

# dryrun/probe/vplan_reuse.py: the part of the probe that knows how long ago the bytes were last used that an operator of the recorded step reads and
# writes: what a card's second-level cache still holds need not come from its memory (devices/efficiency.h has the law).
#
# Distances are bytes: what all operators moved since. Within an operator, reading and writing go through all its tensors side by side, from their
# beginnings to their ends, so the first byte of a tensor has another distance than its last. A byte that is read counts from when it was last read
# or written; one that is written from when it was last written, as a line that is only read is no cheaper to overwrite.
import bisect

BEYOND_EVERY_CACHE = 256 << 20


class Reuse:
    def __init__(self):
        self.moved = 0                      # by all operators so far
        self.used, self.written = Ranges(), Ranges()

    def operator(self, reads, writes, n_bytes):
        """Of an operator that moves n_bytes and reads and writes these ranges, (address, bytes): tuples of (bytes, distance of the first, of the
        last), the near ones only, those of one distance together. Address 0 is no place."""
        near = {}
        reads, writes = [r for r in reads if r[0]], [w for w in writes if w[0]]
        for ranges, known in ((reads, self.used), (writes, self.written)):
            for address, size in ranges:
                for n, at, lasted in known.of(address, size):
                    first = self.moved - at
                    last = first + n_bytes - lasted
                    if min(first, last) < BEYOND_EVERY_CACHE:
                        near[first, last] = near.get((first, last), 0) + n
        for address, size in reads:
            self.used.put(address, size, self.moved, n_bytes)
        for address, size in writes:
            self.used.put(address, size, self.moved, n_bytes)
            self.written.put(address, size, self.moved, n_bytes)
        self.moved += n_bytes
        return tuple((n, first, last) for (first, last), n in sorted(near.items()))


class Ranges:
    """Of an address space, which bytes an operator used last: when it began, and how many bytes it moved. Ranges do not overlap."""

    def __init__(self):
        self.starts, self.rest = [], []     # sorted; beside each (end, when, moved)

    def of(self, address, size):
        """(bytes, when, moved) of each range within these bytes."""
        end = address + size
        i = max(bisect.bisect_right(self.starts, address) - 1, 0)
        while i < len(self.starts) and self.starts[i] < end:
            until, at, moved = self.rest[i]
            n = min(end, until) - max(address, self.starts[i])
            if n > 0:
                yield n, at, moved
            i += 1

    def put(self, address, size, at, moved):
        end = address + size
        if size <= 0:
            return
        first = bisect.bisect_right(self.starts, address) - 1
        if first < 0 or self.rest[first][0] <= address:
            first += 1
        last = bisect.bisect_left(self.starts, end)
        starts, rest = [address], [(end, at, moved)]
        if first < last and self.starts[first] < address:         # what of the first lies before, and of the last behind
            starts.insert(0, self.starts[first])
            rest.insert(0, (address,) + self.rest[first][1:])
        if first < last and self.rest[last - 1][0] > end:
            starts.append(end)
            rest.append(self.rest[last - 1])
        self.starts[first:last], self.rest[first:last] = starts, rest

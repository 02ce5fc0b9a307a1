"""Compiled loops over downsets as bitsets: all of them, membership, inclusion.

Source: Piper, Definition 4.1.
"""

import numpy as np

from formulations.compiled.numba_kernels import INT, INTS, WORDS2, ZERO, compile_kernels, inner, kernel


@kernel(INT, INTS, INTS, INTS, INTS, INT)
def enumerate_downsets(num_nodes, after_start, after, before_start, before, limit):
    """All downsets as bitsets, shape (D, words); an empty array if there are more than ``limit``.

    ``after`` and ``before`` list the successors and the predecessors of every node (CSR). Breadth first by size; a hash
    table drops repetitions. The nodes that may join a downset are kept beside it, so that no other is tested.
    """
    words = max(1, (num_nodes + 63) >> 6)
    size = 1024
    found, ready = np.zeros((size, words), np.uint64), np.zeros((size, words), np.uint64)
    table = np.full(4 * size, -1, np.int64)
    count, head = ZERO + 1, ZERO
    table[_slot(found, ZERO, table)] = 0
    for v in range(num_nodes):
        if after_start[v] == after_start[v + 1]:
            _put(ready, ZERO, v)
    while head < count:
        for word in range(words):
            left = ready[head, word]
            while left != 0:
                lowest = left & (~left + np.uint64(1))
                left ^= lowest
                v = 64 * word + _position(lowest)
                if count == size:
                    size *= 2
                    found, ready = _grown(found, size), _grown(ready, size)
                    table = np.full(4 * size, -1, np.int64)
                    for r in range(count):
                        table[_slot(found, r, table)] = r
                for w in range(words):
                    found[count, w] = found[head, w]
                _put(found, count, v)
                slot = _slot(found, count, table)
                if table[slot] >= 0:
                    continue
                table[slot] = count
                for w in range(words):
                    ready[count, w] = ready[head, w]
                ready[count, word] ^= lowest
                for e in range(before_start[v], before_start[v + 1]):
                    if _closed(found, count, before[e], after_start, after):
                        _put(ready, count, before[e])
                count += 1
                if count > limit:
                    return np.zeros((0, words), np.uint64)
        head += 1
    return found[:count].copy()


@inner()
def _put(sets, r, v):
    sets[r, v >> 6] |= np.uint64(1) << np.uint64(v & 63)


@inner()
def _position(bit):
    """Which bit of a word is set, counted from 0."""
    position = 0
    for width in (32, 16, 8, 4, 2, 1):
        if bit >> np.uint64(width) != 0:
            bit >>= np.uint64(width)
            position += width
    return position


@inner()
def _grown(found, size):
    """The rows of ``found`` at the head of an array of ``size`` rows (loops: slices take seconds to compile)."""
    larger = np.zeros((size, found.shape[1]), np.uint64)
    for r in range(found.shape[0]):
        for w in range(found.shape[1]):
            larger[r, w] = found[r, w]
    return larger


@inner(wraps=True)
def _slot(found, r, table):
    """Where row r stands in the hash table, or the free slot where it belongs."""
    code = np.uint64(14695981039346656037)
    for w in range(found.shape[1]):
        code = (code ^ found[r, w]) * np.uint64(1099511628211)
        code ^= code >> np.uint64(29)
    mask = np.uint64(len(table) - 1)
    slot = np.int64(code & mask)
    while table[slot] >= 0:
        same = True
        for w in range(found.shape[1]):
            if found[table[slot], w] != found[r, w]:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & np.int64(mask)
    return slot


@inner(counted=False)
def has(bits, i, v):
    """True if downset i contains node v."""
    return (bits[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) != 0


@inner()
def _closed(found, r, v, after_start, after):
    """True if all successors of v are in downset r."""
    for e in range(after_start[v], after_start[v + 1]):
        if not has(found, r, after[e]):
            return False
    return True


@kernel(WORDS2, INT, INT, counted=False)
def subset(bits, i, j):
    """True if downset i is contained in downset j."""
    for w in range(bits.shape[1]):
        if bits[i, w] & ~bits[j, w] != 0:
            return False
    return True


compile_kernels()

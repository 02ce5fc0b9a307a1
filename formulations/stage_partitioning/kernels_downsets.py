"""Compiled loops over downsets as bitsets: all of them, membership, inclusion.

Source: Piper, Definition 4.1.
"""

from __future__ import annotations

import numpy as np

from formulations.compiled import INT, WORDS2, compile_kernels, inner, kernel
from formulations.tmpc_knapsack.decision import ZERO


@kernel(INT, WORDS2, INT)
def enumerate_downsets(num_nodes, below, limit):
    """All downsets as bitsets, shape (D, words); an empty array if there are more than ``limit``.

    ``below`` (num_nodes, words) are the successors of every node. Breadth first by size; a hash table drops
    repetitions.
    """
    words = below.shape[1]
    size = 1024
    found = np.zeros((size, words), np.uint64)
    table = np.full(4 * size, -1, np.int64)
    count, head = ZERO + 1, ZERO
    table[_slot(found, ZERO, table)] = 0
    while head < count:
        for v in range(num_nodes):
            if has(found, head, v) or not _closed(below, v, found, head):
                continue
            if count == size:
                size *= 2
                found = _grown(found, size)
                table = np.full(4 * size, -1, np.int64)
                for r in range(count):
                    table[_slot(found, r, table)] = r
            for w in range(words):
                found[count, w] = found[head, w]
            found[count, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
            slot = _slot(found, count, table)
            if table[slot] < 0:
                table[slot] = count
                count += 1
                if count > limit:
                    return np.zeros((0, words), np.uint64)
        head += 1
    return found[:count].copy()


@inner()
def _grown(found, size):
    """The rows of ``found`` at the head of an array of ``size`` rows (loops: slices take seconds to compile)."""
    larger = np.zeros((size, found.shape[1]), np.uint64)
    for r in range(found.shape[0]):
        for w in range(found.shape[1]):
            larger[r, w] = found[r, w]
    return larger


@inner()
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


@inner()
def has(bits, i, v):
    """True if downset i contains node v."""
    return (bits[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) != 0


@inner()
def _closed(below, v, found, r):
    """True if all successors of v are in downset r."""
    for w in range(below.shape[1]):
        if below[v, w] & ~found[r, w] != 0:
            return False
    return True


@kernel(WORDS2, INT, INT)
def subset(bits, i, j):
    """True if downset i is contained in downset j."""
    for w in range(bits.shape[1]):
        if bits[i, w] & ~bits[j, w] != 0:
            return False
    return True


compile_kernels(__name__)

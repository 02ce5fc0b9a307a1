"""Sets that hold all that follows what they hold, and lists of choices that may be within two limits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter

from formulations.contract.checker.frame import bits, need, reject

MAX_BITS = 2**31  # of all downsets of a graph together, with their edges
MAX_STATES = 2_000_000  # of a knapsack's list

Option = tuple[int, int]  # cost and memory


class Downsets:
    """All sets that hold the successors of their members, from smaller to larger ones, by number.

    ``after`` are the successors of each node, as a set, ``ends`` the nodes of each edge; ``most`` sets are admitted.
    """

    def __init__(self, after: list[int], ends: list[tuple[int, int]], most: int) -> None:
        n, before = len(after), [list[int]() for _ in after]
        entering, leaving = [0] * n, [0] * n
        for v, followers in enumerate(after):
            for u in bits(followers):
                before[u].append(v)
        for e, (u, v) in enumerate(ends):
            leaving[u] |= 1 << e
            entering[v] |= 1 << e
        self.masks, self.known, self.crossing = [0], {0: 0}, [0]  # crossing: the edges that enter a downset
        self.origins: list[tuple[int, int]] = []  # of all but the empty set: a smaller one, and the node that it lacks
        limit = max(1, min(most, MAX_BITS // (n + len(ends))))
        ready = [sum(1 << v for v in range(n) if not after[v])]
        for i, mask in enumerate(self.masks):  # which grows meanwhile
            for v in bits(ready[i]):
                new = mask | 1 << v
                if new in self.known:
                    continue
                reject(len(self.masks) == limit, f"size: a graph of over {limit} downsets")
                self.known[new] = len(self.masks)
                self.masks.append(new)
                self.origins.append((i, v))
                self.crossing.append(self.crossing[i] & ~leaving[v] | entering[v])
                ready.append(ready[i] & ~(1 << v) | sum(1 << u for u in before[v] if not after[u] & ~new))
        need(self.masks[-1] == (1 << n) - 1, "a graph without cycles")

    def sums(self, amounts: list[int]) -> list[int]:
        """The sum of an amount of nodes over each downset."""
        found = [0]
        for i, v in self.origins:
            found.append(found[i] + amounts[v])
        return found


def undominated(options: Iterable[Option]) -> list[Option]:
    """The pairs that none beats or equals in both, by rising first and falling second numbers."""
    kept: list[Option] = []
    for option in sorted(options):
        if not kept or option[1] < kept[-1][1]:
            kept.append(option)
    return kept


def savings(options: list[Option]) -> list[tuple[int, int, int]]:
    """The lower convex hull of undominated options as steps (ratio, more cost, less memory), ratios rising."""
    hull: list[Option] = []
    for c, m in options:
        while len(hull) > 1:
            (c0, m0), (c1, m1) = hull[-2:]
            if (c1 - c0) * (m1 - m) < (c - c1) * (m0 - m1):
                break
            hull.pop()
        hull.append((c, m))
    return [((c - c0 << 64) // (m0 - m), c - c0, m0 - m) for (c0, m0), (c, m) in pairwise(hull)]


def listed(groups: list[list[Option]], budget: int, capacity: int, p: int, q: int) -> bool:
    """`fits`, by a list of partial choices; for any p, q >= 0 it ends empty only if nothing fits.

    q cost + p memory of a choice within the limits exceeds its least value by ``excess`` at most.
    """
    least = [min(q * c + p * m for c, m in group) for group in groups]
    excess = q * budget + p * capacity - sum(least)
    states, used = [(0, 0)], excess
    cheapest, lightest = sum(group[0][0] for group in groups), sum(group[-1][1] for group in groups)
    for group, low in zip(groups, least, strict=True):
        cheapest, lightest, used = cheapest - group[0][0], lightest - group[-1][1], used + low
        near = [(c, m) for c, m in group if q * c + p * m <= excess + low]
        reject(len(states) * len(near) > MAX_STATES, f"size: a knapsack with over {MAX_STATES} states")
        sums = [(c0 + c, m0 + m) for c0, m0 in states for c, m in near]
        most, room = budget - cheapest, capacity - lightest
        states = undominated((c, m) for c, m in sums if c <= most and m <= room and q * c + p * m <= used)
        if not states:
            return False
    return True


def fits(groups: list[list[Option]], budget: int | None, capacity: float) -> bool:
    """Whether one of the undominated options of each group can be chosen within both limits; no budget: any cost."""
    if sum(group[-1][1] for group in groups) > capacity:
        return False
    if budget is None:
        return True
    left, over = budget - sum(group[0][0] for group in groups), sum(group[0][1] for group in groups) - capacity
    if left < 0 or over <= 0:
        return left >= 0
    p, q = 0, 0  # cost for memory, where the relaxed knapsack ends
    for _, p, q in sorted((step for group in groups for step in savings(group)), key=itemgetter(0)):
        left, over = left - p, over - q  # in the order of a group's steps
        if over <= 0:
            break
    return left >= 0 or listed(groups, budget, int(capacity), p, q)  # left >= 0: with the steps that were taken

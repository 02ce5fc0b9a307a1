"""Operator clustering: adjacent clusters are fused, the pair of least cost first, as long as their fusion is convex.

Source: Parmesan, section 4.2 and Equation 4; ties, pairs that have to wait and the default K: Source: reconstructed
(its Appendix B is not published).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from instances.problems.operator_partitioning import OperatorInstance

#: alpha of Equation 4, as the paper's experiments take it.
ALPHA = 0.001


def default_clusters(num_stages: int) -> int:
    """The default K: 8 S, but 64 to 256."""
    return min(max(8 * num_stages, 64), 256)


@dataclass(frozen=True)
class Fusions:
    """The order of fusions: ``pairs[i]`` are the first operators of the two clusters (the second joins the first)."""

    num_operators: int
    pairs: tuple[tuple[int, int], ...]

    def clusters(self, count: int) -> tuple[tuple[int, ...], ...]:
        """The clusters once no more than ``count`` are left, or as few as there can be; by their least operator."""
        members = {operator: [operator] for operator in range(self.num_operators)}
        for kept, fused in self.pairs[: max(0, self.num_operators - count)]:
            members[kept] += members.pop(fused)
        return tuple(sorted(tuple(sorted(found)) for found in members.values()))


def fuse(
    instance: OperatorInstance, until: int, alpha: float = ALPHA, stopped: Callable[[], bool] = lambda: False
) -> Fusions:
    """Fuse clusters until ``until`` are left, none can be fused, or ``stopped()``.

    The cost of a pair is c_u(u) + c_u(v) - alpha c_m(u, v); a tensor with several targets in v counts once. A fusion
    must be convex, and its parameters and own memory must fit a device. Ties go to the smaller operators.
    """
    state = _Clusters(instance, alpha)
    while state.count > until and not stopped():
        pair = state.next_pair()
        if pair is None:
            break
        state.fuse(*pair)
    return Fusions(len(instance.operators), tuple(state.pairs))


class _Clusters:
    """The clusters, named by one of their operators; sets of clusters are bitsets."""

    def __init__(self, instance: OperatorInstance, alpha: float) -> None:
        n = len(instance.operators)
        copies = instance.training.weight_copies if instance.training else 0.0
        self.count = n
        self.pairs: list[tuple[int, int]] = []
        self._alpha = alpha
        self._compute = [operator.compute_s for operator in instance.operators]
        self._memory = [operator.memory_bytes + copies * operator.parameter_bytes for operator in instance.operators]
        pooled = instance.replicas if instance.pooled_memory else 1
        self._limit = None if instance.memory_bytes is None else instance.memory_bytes * pooled
        self._seconds = [tensor.volume_bytes / instance.bandwidth_bytes_per_s for tensor in instance.tensors]
        self._least = list(range(n))  # the least operator of each cluster, for ties
        self._alive = [True] * n
        self._version = [0] * n
        self._tensors: list[dict[int, set[int]]] = [{} for _ in range(n)]  # by successor
        self._before: list[set[int]] = [set() for _ in range(n)]
        for number, tensor in enumerate(instance.tensors):
            for target in tensor.targets:
                self._tensors[tensor.source].setdefault(target, set()).add(number)
                self._before[target].add(tensor.source)
        self._behind = [0] * n  # all clusters that can be reached
        for u in reversed(range(n)):
            for v in self._tensors[u]:
                self._behind[u] |= self._behind[v] | (1 << v)
        self._heap: list[tuple[float, int, int, int, int, int, int]] = []
        self._waiting: dict[tuple[int, int], None] = {}
        for u in range(n):
            for v in self._tensors[u]:
                self._push(u, v)

    def _push(self, u: int, v: int) -> None:
        sent = sum(self._seconds[tensor] for tensor in sorted(self._tensors[u][v]))
        cost = self._compute[u] + self._compute[v] - self._alpha * sent
        entry = (cost, self._least[u], self._least[v], u, v, self._version[u], self._version[v])
        heapq.heappush(self._heap, entry)

    def next_pair(self) -> tuple[int, int] | None:
        """The pair of least cost that may be fused; ``None`` if there is none."""
        while self._heap:
            _, _, _, u, v, version_u, version_v = heapq.heappop(self._heap)
            current = self._alive[u] and self._alive[v] and v in self._tensors[u]
            if not current or (version_u, version_v) != (self._version[u], self._version[v]):
                continue
            if self._limit is not None and self._memory[u] + self._memory[v] > self._limit:
                continue  # a cluster only grows
            if self._detour(u, v):
                self._waiting[u, v] = None
                continue
            return u, v
        return None

    def _detour(self, u: int, v: int) -> bool:
        """Whether another path leads from u to v: then their fusion would not be convex."""
        return any(self._behind[w] >> v & 1 for w in self._tensors[u] if w != v)

    def fuse(self, u: int, v: int) -> None:
        """Let v join u."""
        self.pairs.append((u, v))
        self.count -= 1
        self._alive[v] = False
        self._version[u] += 1
        self._compute[u] += self._compute[v]
        self._memory[u] += self._memory[v]
        self._least[u] = min(self._least[u], self._least[v])
        del self._tensors[u][v]
        self._before[v].discard(u)
        for w, tensors in self._tensors[v].items():
            self._tensors[u].setdefault(w, set()).update(tensors)
            self._before[w].discard(v)
            self._before[w].add(u)
        for w in self._before[v]:
            self._tensors[w].setdefault(u, set()).update(self._tensors[w].pop(v))
            self._before[u].add(w)
        either = 1 << u | 1 << v
        self._behind[u] |= self._behind[v]
        self._behind[u] &= ~either
        reached = self._behind[u] | 1 << u
        for w, behind in enumerate(self._behind):
            if behind & either and self._alive[w]:
                self._behind[w] = (behind | reached) & ~(1 << v)
        self._tensors[v], self._before[v], self._behind[v] = {}, set(), 0
        for w in self._tensors[u]:
            self._push(u, w)
        for w in self._before[u]:
            self._push(w, u)
        self._wake(u)

    def _wake(self, u: int) -> None:
        """Look again at pairs whose detour may have led through the new cluster."""
        woken = [
            (a, b)
            for a, b in self._waiting
            if not self._alive[a]
            or not self._alive[b]
            or u in (a, b)
            or (self._behind[a] >> u & 1 and self._behind[u] >> b & 1)
        ]
        for a, b in woken:
            del self._waiting[a, b]
            if self._alive[a] and self._alive[b] and b in self._tensors[a]:
                self._push(a, b)

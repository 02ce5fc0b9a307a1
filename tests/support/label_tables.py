"""Tables of labels for certificates of stage partitioning, made from the theorem alone, rightly or with one fault.

Shares no code with the rooms: fractions, every subset of layers, every choice. For instances of a handful of layers.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any

from instances.problems.stage_partitioning import StageInstance, Tmpc

#: What a maker may get wrong, each in a way that true certificates do not show.
FAULTS = (
    "rounds the bound before a product with d", "rounds the cost of a batch up",
    "takes stages shorter than the bound only", "takes memory below the limit only",
    "counts in-flight micro-batches with a stage more", "synchronises one replica too many",
    "charges an edge inside the stage", "keeps the label of fewest devices only", "tries the largest degree only",
    "grows by one layer at a time", "leaves the last degree out", "uses the first TMPC of a layer",
)  # fmt: skip


class Maker:
    """Labels within ``limit`` (infinite: any time), with the ``fault`` of that name if there is one."""

    def __init__(self, instance: StageInstance, limit: Fraction | float, fault: str = "") -> None:
        self.instance, self.limit, self.fault = instance, limit, fault
        self.layers = {layer.id: layer for layer in instance.layers}
        self.names = [layer.id for layer in instance.layers]
        after = {v: {e.target for e in instance.edges if e.source == v} for v in self.names}
        sets = (frozenset(c) for size in range(len(self.names) + 1) for c in combinations(self.names, size))
        self.downsets = [found for found in sets if all(after[v] <= found for v in found)]

    def labels(self) -> dict[frozenset, set[tuple[int, int]]]:
        """All labels of every downset, from the empty one on."""
        found: dict[frozenset, set[tuple[int, int]]] = {downset: set() for downset in self.downsets}
        found[frozenset()].add((0, 0))
        for small in self.downsets:
            kept = self._kept(found[small])
            for large in self.downsets:
                grown = len(large) - len(small)
                if not small < large or (grown > 1 and self.fault == "grows by one layer at a time"):
                    continue
                for (s, k), t in product(kept, self._tensor_degrees()):
                    for d in self._degrees(s, k, t):
                        if self._possible(large - small, d, t, s + d):
                            found[large].add((s + d, k + d * t))
        return found

    def certificate(self, digest: str, plan: Any, objective: Fraction | None) -> dict[str, Any] | None:
        """The certificate that they make; ``None`` if all layers have a label, so that nothing is proved."""
        found, instance = self.labels(), self.instance
        total = [s for s, _ in found[frozenset(self.names)]]
        if any(not instance.exactly or s == instance.num_microbatches for s in total):
            return None
        rows = [[f"{sum(1 << self.names.index(v) for v in each):x}", sorted(found[each])] for each in self.downsets]
        bound = None if self.limit == math.inf else str(Fraction(self.limit))
        return {
            "format": 1, "problem": "stage_partitioning", "instance_sha256": digest, "plan": plan,
            "objective": None if objective is None else str(objective), "bound": bound,
            "proof": {"kind": "labels", "downsets": rows},
        }  # fmt: skip

    def _kept(self, labels: set[tuple[int, int]]) -> list[tuple[int, int]]:
        if self.fault == "keeps the label of fewest devices only":
            return [min(labels, key=lambda label: (label[1], -label[0]))] if labels else []
        return sorted(labels)

    def _tensor_degrees(self) -> list[int]:
        return sorted({t for layer in self.instance.layers for t, row in layer.tmpcs.items() if row})

    def _degrees(self, s: int, k: int, t: int) -> list[int]:
        """The data-parallel degrees of a stage behind others of sum s on k devices."""
        N, most = self.instance.num_microbatches, self.instance.max_dp_degree or self.instance.num_microbatches
        room = min(N - s, (self.instance.num_devices - k) // t, most)
        found = [d for d in range(1, room + 1) if self.instance.cost_model == "paper" or N % d == 0]
        if self.fault == "tries the largest degree only":
            return found[-1:]
        return found[:-1] if self.fault == "leaves the last degree out" else found

    def _possible(self, stage: frozenset, d: int, t: int, s: int) -> bool:
        in_flight = -(-s // d) + (self.fault == "counts in-flight micro-batches with a stage more")
        for choice in self._choices(stage, t):
            memory = sum(Fraction(x.activation_bytes) * in_flight + Fraction(x.static_bytes) for x in choice.values())
            room = Fraction(self.instance.memory_bytes) * (1 + Fraction(1, 10**12))
            if memory > room or (memory >= room // 1 and self.fault == "takes memory below the limit only"):
                continue
            if self._in_time(self.cost(stage, choice, d), d):
                return True
        return False

    def _choices(self, stage: frozenset, t: int) -> Iterator[dict]:
        rows = [self.layers[v].tmpcs.get(t, ()) for v in stage]
        if self.fault == "uses the first TMPC of a layer":
            rows = [row[:1] for row in rows]
        return (dict(zip(stage, choice, strict=True)) for choice in product(*rows))

    def _in_time(self, cost: Fraction, d: int) -> bool:
        """Whether a cost, d times the time of a stage, is within the bound."""
        if self.limit == math.inf:
            return True
        if self.fault == "rounds the bound before a product with d":
            return cost <= d * (self.limit // 1)
        if self.fault == "rounds the cost of a batch up":
            return math.ceil(cost) <= d * self.limit
        if self.fault == "takes stages shorter than the bound only":
            return cost < d * self.limit
        return cost <= d * self.limit

    def cost(self, stage: frozenset, choice: dict[Any, Tmpc], d: int) -> Fraction:
        """d times the time of a stage (Piper, section 4)."""
        instance, B = self.instance, Fraction(self.instance.bandwidth)
        replicas = d if instance.cost_model == "paper" else instance.num_microbatches
        others = d if self.fault == "synchronises one replica too many" else d - 1
        total = Fraction(0)
        for x in choice.values():
            total += Fraction(x.time) + 4 * others * Fraction(x.weight_bytes) / replicas / B
        for e in instance.edges:
            inside = {e.source, e.target} <= stage and self.fault == "charges an edge inside the stage"
            if e.target in stage and (e.source not in stage or inside):
                sync = Fraction(choice[e.target].sync_forward_bytes.get(e.source, 0.0))
                total += 2 * (Fraction(e.bytes) + sync) / B
            if e.source in stage and e.target not in stage:
                sync = Fraction(choice[e.source].sync_backward_bytes.get(e.target, 0.0))
                total += 2 * (Fraction(e.bytes) + sync) / B
        return total

    def time(self, plan: dict[str, Any]) -> Fraction:
        """The exact time of a plan in its JSON form."""
        times = []
        for stage in plan["stages"]:
            nodes, d, t = frozenset(stage["nodes"]), stage["dp_degree"], stage["tp_degree"]
            names = {v: stage["tmpcs"][str(v)] for v in nodes}
            choice = {v: next(x for x in self.layers[v].tmpcs[t] if x.id == names[v]) for v in nodes}
            times.append(self.cost(nodes, choice, d) / d)
        return max(times)

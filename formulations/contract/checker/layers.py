"""Graphs of layers with TMPCs in exact integers, their downsets, and the stages of a plan."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar

from formulations.contract.checker.downsets import MAX_BITS, Downsets
from formulations.contract.checker.frame import SLACK, bits, count, exact, need, reject

MAX_ENDS = 5_000_000  # of TMPCs at edges of their layers


class Tmpc(NamedTuple):
    """A TMPC in integers: costs in units of 1 / (B ``unit``), memory in units of 1 / ``grain`` of its graph."""

    time: int
    sync: int  # 4 X.w
    a: int
    b: int
    into: dict[int, int]  # the cost of every edge where it enters the stage
    out: dict[int, int]  # and where it leaves it
    kept: dict[int, int]  # what it may add to a, by position in ``carried``

    def cost(self, into: int, out: int) -> int:
        """Time and communication; two sets of edges cross the stage's boundary."""
        crossing = sum(c for e, c in self.into.items() if into >> e & 1)
        return self.time + crossing + sum(c for e, c in self.out.items() if out >> e & 1)


class Layers:
    """A graph in integers, by position of layers and edges; ``tmpcs[v][t][id]``."""

    def __init__(self, content: Any, B: Fraction, fine: int = 1) -> None:
        layers, edges = content["layers"], content.get("edges", [])
        self.ids = ids = [str(layer["id"]) for layer in layers]
        self.index = {name: v for v, name in enumerate(ids)}
        self.ends = [(self.index[str(edge["source"])], self.index[str(edge["target"])]) for edge in edges]
        need(len(self.index) == len(ids) > 0 and len(set(self.ends)) == len(edges), "layers and edges, none twice")
        self.bits = len(ids) + len(edges)
        reject(len(ids) >= MAX_BITS // self.bits, "size: a graph of too many layers and edges")
        incoming: list[dict[str, int]] = [{} for _ in ids]  # edges, by the id at their other end
        outgoing: list[dict[str, int]] = [{} for _ in ids]
        self.near, self.after = [0 for _ in ids], [0 for _ in ids]  # the edges of a layer, and the layers behind it
        for e, (u, v) in enumerate(self.ends):
            outgoing[u][ids[v]] = incoming[v][ids[u]] = e
            self.near[u], self.near[v] = self.near[u] | 1 << e, self.near[v] | 1 << e
            self.after[u] |= 1 << v
        self.sizes = sizes = [exact(edge["bytes"]) for edge in edges]
        need(B > 0, "a positive bandwidth")
        ends = zip(incoming, outgoing, layers, strict=True)
        ends_of_all = sum((len(i) + len(o)) * sum(map(len, layer["tmpcs"].values())) for i, o, layer in ends)
        reject(ends_of_all > MAX_ENDS, f"size: over {MAX_ENDS} TMPCs at edges of their layers")

        def crossing(x: Any, way: str, near: dict[str, int]) -> dict[int, Fraction]:
            sync = {name: exact(c) for name, c in x.get(f"sync_{way}_bytes", {}).items()}
            need(sync.keys() <= near.keys(), "sync volumes of a layer's own edges")
            return {e: 2 * (sizes[e] + sync.get(name, 0)) for name, e in near.items()}

        kept = content.get("kept", []) if content.get("cost_model") == "runtime" else []
        self.tensors = [
            ([self.index[str(u)] for u in x["layers"]], [str(name) for name in x["tmpcs"]], exact(x["bytes"]))
            for x in kept
        ]
        need(all(len(set(us)) == len(us) for us, *_ in self.tensors), "kept tensors of layers, none twice")
        # A layer adds a tensor in a stage without the layers before it in the tensor's list; the first has it in a.
        later = [
            (v, sum(1 << u for u in us[:i]), names, size)
            for us, names, size in self.tensors for i, v in enumerate(us) if i
        ]  # fmt: skip
        self.carried = [(v, before) for v, before, *_ in later]
        #: As the instance declares them: layer, t, id, costs, memory, and the costs of edges in and out.
        self.rows = [
            (v, count(int(t)), str(x["id"]), B * exact(x["time"]), 4 * exact(x["weight_bytes"]),
             exact(x["activation_bytes"]), exact(x["static_bytes"]),
             crossing(x, "forward", incoming[v]), crossing(x, "backward", outgoing[v]))
            for v, layer in enumerate(layers) for t, row in layer["tmpcs"].items() for x in row
        ]  # fmt: skip
        # All denominators are powers of two, so that the largest is a common one.
        costs = (c for row in self.rows for c in (*row[3:5], *row[7].values(), *row[8].values()))
        self.unit = unit = fine * max(c.denominator for c in costs)
        memory = (*(m for row in self.rows for m in row[5:7]), *(size for *_, size in self.tensors))
        self.grain = grain = max(m.denominator for m in memory)
        self.capacity: float = math.floor(exact(content["memory_bytes"]) * SLACK * grain)
        self.tmpcs: list[dict[int, dict[str, Tmpc]]] = [{} for _ in ids]
        for v, t, name, cost, weight, a, b, enters, leaves in self.rows:
            into, out = ({e: int(c * unit) for e, c in costs.items()} for costs in (enters, leaves))
            held = {h: int(size * grain) for h, (u, _, names, size) in enumerate(later) if u == v and name in names}
            need(name not in self.tmpcs[v].setdefault(t, {}), "TMPCs, none twice")
            amounts = int(cost * unit), int(weight * unit), int(a * grain), int(b * grain)
            self.tmpcs[v][t][name] = Tmpc(*amounts, into, out, held)

    def stage(self, stage: Any, behind: int) -> tuple[int, int, int, list[Tmpc], int, int]:
        """Of a plan's stage in front of a set of layers: d, t, its layers, their TMPCs, and edges in and out."""
        d, t, nodes = count(stage["dp_degree"]), count(stage["tp_degree"]), [str(node) for node in stage["nodes"]]
        reject(not nodes or not self.index.keys() >= set(nodes), "plan: a stage without layers, or an unknown one")
        found = [self.tmpcs[self.index[v]].get(t, {}).get(stage["tmpcs"].get(v)) for v in nodes]
        chosen = [x for x in found if x is not None]
        reject(len(chosen) < len(nodes), f"plan: TMPCs at t = {t}")
        mask = sum(1 << self.index[v] for v in set(nodes))
        reject(len(set(nodes)) < len(nodes) or mask & behind > 0, "plan: every layer in one stage")
        into, out = self.crossing(mask)
        reject(any(not (behind | mask) >> self.ends[e][1] & 1 for e in bits(out)), "plan: an edge runs backwards")
        return d, t, mask, chosen, into, out

    def crossing(self, mask: int) -> tuple[int, int]:
        """The edges that enter a set of layers, and those that leave it."""
        ends = list(enumerate(self.ends))
        into = sum(1 << e for e, (u, v) in ends if mask >> v & 1 and not mask >> u & 1)
        return into, sum(1 << e for e, (u, v) in ends if mask >> u & 1 and not mask >> v & 1)


Graph = TypeVar("Graph", bound=Layers)


class Lattice(Generic[Graph]):
    """The downsets of a graph of layers whose stages have at most so many devices a replica, and their sums.

    ``work`` and ``size`` of a layer are the least t X.time and X.a + X.b of those that fit, ``works`` and ``sizes``
    their sums; ``sums[q]`` at the q-th of ``tp``: least time, sync, a and b, and how many layers have no TMPC there.
    """

    def __init__(self, instance: Graph, devices: int) -> None:
        self.instance, self.tmpcs = instance, instance.tmpcs
        self.tp = sorted({t for layer in self.tmpcs for t, row in layer.items() if row and t <= devices})
        small = [
            [(t, x) for t in self.tp for x in layer.get(t, {}).values() if x.a + x.b <= instance.capacity]
            for layer in self.tmpcs
        ]
        self.work = [min((t * x.time for t, x in row), default=0) for row in small]
        self.size = [min((x.a + x.b for _, x in row), default=0) for row in small]
        self.unplaced = not all(small)

    def enumerate(self, most: int) -> None:
        """List the downsets, at most so many."""
        self.downsets = downsets = Downsets(self.instance.after, self.instance.ends, most)
        self.masks, self.known, self.crossing = downsets.masks, downsets.known, downsets.crossing
        self.works, self.sizes = downsets.sums(self.work), downsets.sums(self.size)
        self.sums: list[list[tuple[int, ...]]] = []
        for t in self.tp:
            rows = [[x[:4] for x in layer.get(t, {}).values()] for layer in self.tmpcs]
            least = [[*map(min, zip(*row, strict=True)), 0] if row else [0, 0, 0, 0, 1] for row in rows]
            parts = [downsets.sums(list(part)) for part in zip(*least, strict=True)]
            self.sums.append(list(zip(*parts, strict=True)))

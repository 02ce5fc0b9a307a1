"""Check a certificate of a training strategy: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README and that of
formulations/layer_assignment, whose letters it uses (L, S, N, T_j, A_j, e, t_l). Numbers of an instance are the float64
numbers that its JSON denotes, as exact rationals.

**Claims.** ``plan`` keeps every rule and takes ``objective``; every plan takes more than ``bound``, B (if B is 0: none
takes less, which needs no proof). If ``bound`` is null there is no plan.

**Proof.** The checker lists all strategies: micro-batch, degrees, and placement. What is left of one are a chain of L
layers, S stages and their costs: a *chain*; placements with equal costs have one together. Chains are numbered as they
are listed, and those with S > L left out: they have no plan. The proof has ``chains``, pairs of a number and of rows
[a, caps]: seconds of an all-reduce, rising a_1 < ... < a_n and then null for infinity, each with caps on the slowest
stage below it, rising c_1 < ... < c_m. A chain that is not named has the row [null, []]. Let a_0 be 0, and a_(n+1)
infinite, and the same for c. phi(c, a) is the least sum of all T_j and e(cut_j, j) over all plans of the chain with
T_j <= c and A_j <= a for all stages j, infinite if there are none. The rule for every chain is, for i = 0 to n, and for
k = 0 to m with the caps below a_(i+1),

    (N - 1) c_k + phi(c_(k+1), a_(i+1)) + a_i > B.

**Theorem.** If it holds, every plan takes more than B. If no chain is left, there is no plan.

*Proof.* Every plan is one of some chain. Let A be its longest all-reduce (0 without), and T the time of its slowest
stage. As A >= 0 and a_(n+1) is infinite, there is an i with a_i <= A <= a_(i+1): the least i for which A <= a_(i+1). So
there is a k with c_k <= T <= c_(k+1). All its stages keep both upper limits, so they and its cuts take at least
phi(c_(k+1), a_(i+1)). So it takes at least the left side.

phi is found from the input side on: for each number of stages j and of layers i, the least of cutting the first i
layers into j stages within the limits. The last of these stages begins in a window of layers that moves with i only
forward, as more layers never take less time, nor have fewer parameters.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

from formulations.contract.checker.chain import Chain, Row
from formulations.contract.checker.frame import Checker, RejectedError, count, exact, index, need, reject, stated

MAX_CAPS, MAX_CHAINS = 10_000, 10_000
MAX_DEVICES, MAX_RANKS = 10_000, 10**7  # of a cluster, and in all parts of tilings of its mesh together

Ranks = tuple[int, ...]  # the device of each rank
#: Seconds of a byte across each cut and of a parameter in each ring, and the kinds of GPU whose times count in a stage.
Costs = tuple[tuple[Fraction, ...], tuple[Fraction, ...], tuple[tuple[str, ...], ...]]


class Instance:
    """An instance; layers, nodes and devices by number."""

    def __init__(self, content: Any) -> None:
        self.rows, self.batch = count(content["devices_per_node"]), count(content["global_batch"])
        self.nodes = [
            (str(x["gpu"]), exact(x["intra_bytes_per_s"]), exact(x["inter_bytes_per_s"])) for x in content["nodes"]
        ]
        self.devices = self.rows * len(self.nodes)
        need(0 < self.devices <= MAX_DEVICES and all(min(x[1:]) > 0 for x in self.nodes), f"1 to {MAX_DEVICES} devices")
        self.passes, self.bytes = exact(content.get("passes", 3.0)), exact(content.get("parameter_bytes", 4.0))
        self.placement = content.get("placement", "megatron")
        need(self.placement in ("megatron", "tiling", "oriented"), "a placement: megatron, tiling or oriented")
        self.by_stage = content.get("layer_times", "mean") == "slowest"
        need(self.by_stage or content.get("layer_times", "mean") == "mean", "layer_times: mean or slowest")
        layers = content["layers"]
        #: By layer, degree and kind of GPU.
        self.forward = [
            {g: {count(int(t)): exact(s) for t, s in row.items()} for g, row in x["forward_s"].items()} for x in layers
        ]
        need(bool(layers), "a layer")
        self.profiled = sorted({t for row in self.forward[0].values() for t in row})
        need(all(set(row.get(g, {})) == set(self.profiled) for row in self.forward for g, _, _ in self.nodes), "times")
        self.sent = [(exact(x["activation_bytes"]), x.get("split_activation", False)) for x in layers]
        need(all(type(split) is bool for _, split in self.sent), "split_activation: true or false")
        self.sizes = [exact(x.get("parameters", 0.0)) for x in layers]
        self.tied = [(frozenset(map(index, x["layers"])), exact(x["parameters"])) for x in content.get("tied", [])]
        need(all(v < len(layers) for held, _ in self.tied for v in held), "layers that share parameters")
        forward = [sorted((g, sorted(row.items())) for g, row in each.items()) for each in self.forward]
        ties = [(sorted(held), size) for held, size in self.tied]
        declared = [self.rows, self.batch, self.nodes, self.passes, self.bytes, self.placement, forward, self.sent]
        declared += ["slowest"] if self.by_stage else []
        self.digest = hashlib.sha256(str([*declared, self.sizes, ties]).encode()).hexdigest()
        self.ranks, self.known = 0, dict[tuple[int, int], list[Ranks]]()

    def strategies(self) -> Iterator[tuple[int, int, int]]:
        """Micro-batch and degrees of tensor and data parallelism."""
        for t in self.profiled:
            for d in range(1, self.devices // t + 1 if self.rows % t == 0 else 1):
                if self.devices // t % d == 0 and self.batch % d == 0:
                    yield from ((b, t, d) for b in range(1, self.batch // d + 1) if self.batch // d % b == 0)

    def chains(self) -> Iterator[Chain]:
        """What is left of all strategies that have a plan, in order, of those with equal costs once."""
        for b, t, d in self.strategies():
            if self.devices // t // d <= len(self.forward):
                costs = dict.fromkeys(self.costs(t, d, placement) for placement in self.placements(t, d))
                yield from (self.chain(b, t, d, *each) for each in costs)

    def placements(self, t: int, d: int) -> list[Ranks]:
        """Those that the instance allows."""
        if (t, d) not in self.known:
            self.known[t, d] = list(self._placements(t, d))
        return self.known[t, d]

    def _placements(self, t: int, d: int) -> Iterator[Ranks]:
        yield tuple(range(self.devices))
        shapes = dict.fromkeys([(t, d), (d, t)]) if self.placement != "megatron" else {}
        pending: list[tuple[frozenset[int], Ranks]] = [(frozenset(range(self.devices)), ())]
        while pending and shapes:  # the cell of row r and column c is r * nodes + c
            free, ranks = pending.pop()
            if not free:
                yield ranks
                continue
            self.ranks += self.devices
            reject(self.ranks > MAX_RANKS, f"size: over {MAX_RANKS} ranks in parts of tilings")
            row, column = divmod(min(free), len(self.nodes))
            for height, width in shapes:
                if row + height <= self.rows and column + width <= len(self.nodes):
                    cells = [(r, c) for c in range(column, column + width) for r in range(row, row + height)]
                    taken = frozenset(r * len(self.nodes) + c for r, c in cells)
                    if self.placement == "oriented" and height != t:  # the tile lies, and so do its groups
                        cells.sort()
                    if taken <= free:
                        pending.append((free - taken, (*ranks, *(c * self.rows + r for r, c in cells))))

    def bandwidth(self, device: int, other: int) -> Fraction:
        """Between two devices."""
        here, there = device // self.rows, other // self.rows
        return self.nodes[here][1] if here == there else min(self.nodes[here][2], self.nodes[there][2])

    def costs(self, t: int, d: int, placement: Ranks) -> Costs:
        """Of the cut behind each stage but the last, of each stage's ring, and of each stage's layers."""
        S = self.devices // t // d
        at = [[[placement[(j * d + rank) * t + m] for m in range(t)] for rank in range(d)] for j in range(S)]
        links = [[min(map(self.bandwidth, *pair)) for pair in zip(*two, strict=True)] for two in pairwise(at)]
        slow = tuple(sum((1 / link for link in each), Fraction(0)) / d for each in links)
        rings = [[group[m] for group in stage] for stage in at for m in range(t)]
        each = [
            min((self.bandwidth(x, y) for x, y in pairwise([*ring, ring[0]])), default=Fraction(1)) for ring in rings
        ]
        share = Fraction(2 * (d - 1), d) * self.bytes
        every = tuple(gpu for gpu, _, _ in self.nodes)
        own = [tuple(sorted({every[x // self.rows] for rank in stage for x in rank})) for stage in at]
        kinds = tuple(own) if self.by_stage else (every,) * S
        return slow, tuple(share / min(each[j * t : j * t + t]) for j in range(S)), kinds

    def chain(self, b: int, t: int, d: int, *costs: *Costs) -> Chain:
        """The layer assignment that is left."""
        slow, rings, kinds = costs
        forward = {own: [[row[gpu][t] for gpu in own] for row in self.forward] for own in set(kinds)}
        by_kinds = {
            own: [self.passes * b * (max(row) if self.by_stage else sum(row, Fraction(0)) / len(row)) for row in each]
            for own, each in forward.items()
        }
        times = [by_kinds[own] for own in kinds]
        volumes = [b * size / (t if split else 1) for size, split in self.sent[:-1]]
        cuts = [[volume * each for each in slow] for volume in volumes]
        tied = [(held, size / t) for held, size in self.tied]
        return Chain(self.batch // d // b, times, cuts, list(rings), [size / t for size in self.sizes], tied)


def prove(instance: Instance, bound: Fraction | None, proof: Any) -> None:
    """`RejectedError` if it does not follow that every plan takes more than the bound, or that there is none."""
    given = rows_of(proof)
    rows, number = dict(given), -1
    need(len(rows) == len(given), "no chain twice")
    for number, chain in enumerate(instance.chains()):
        reject(bound is None, "stages: there are as many layers")
        reject(number == MAX_CHAINS, f"size: over {MAX_CHAINS} chains")
        try:
            chain.prove(bound or Fraction(0), rows.get(number, [(None, [])]))
        except RejectedError as error:
            raise RejectedError(f"chain {number}: {error}") from None
    need(all(0 <= each <= number for each in rows), "numbers of chains")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    b, t, d, S = (count(plan[name]) for name in ("microbatch", "tp_degree", "dp_degree", "pp_degree"))
    reject((b, t, d) not in instance.strategies() or instance.devices // t // d != S, "plan: degrees or micro-batch")
    lengths = [count(length, 0) for length in plan["lengths"]]
    placement = tuple(count(device, 0) for device in plan["placement"])
    reject(placement not in instance.placements(t, d), "plan: placement")
    return instance.chain(b, t, d, *instance.costs(t, d, placement)).time(lengths)


def rows_of(proof: Any) -> list[tuple[int, list[Row]]]:
    """The rows of the chains that a proof names."""
    given = [(index(number), [(stated(most), caps) for most, caps in rows]) for number, rows in proof["chains"]]
    reject(sum(1 + len(caps) for _, rows in given for _, caps in rows) > MAX_CAPS, f"size: over {MAX_CAPS} caps")
    for _, rows in given:
        last = [most is None for most, _ in rows]
        need(last == [False] * (len(rows) - 1) + [True], "rows that end with null")
        need(all(type(cap) is str for _, caps in rows for cap in caps), "seconds as text")
    return [
        (n, [(most, [cap for cap in map(stated, caps) if cap is not None]) for most, caps in rows]) for n, rows in given
    ]


CHECKER = Checker("amp_strategy", ("caps",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

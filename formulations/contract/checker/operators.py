"""Graphs of operators and tensors with exact amounts, and the memory of a stage of them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from formulations.contract.checker.frame import SLACK, bits, count, exact, need, reject

MAX_BITS = 2**31  # of sets of operators and tensors


class Operators:
    """Operators in an order in which tensors go forward, by position; memory in units of 1 / ``grain`` bytes."""

    def __init__(self, content: Any) -> None:
        operators, tensors, training = content["operators"], content["tensors"], content.get("training")
        self.index = {str(each["id"]): v for v, each in enumerate(operators)}
        need(len(self.index) == len(operators) > 0, "operators, none twice")
        size = len(operators) * (len(operators) + len(tensors))
        reject(size > MAX_BITS, "size: a graph of too many operators and tensors")
        self.sources = [self.index[str(each["source"])] for each in tensors]
        self.targets = [[self.index[str(target)] for target in each["targets"]] for each in tensors]
        in_order = all(
            found and source < min(found) and len(set(found)) == len(found)
            for source, found in zip(self.sources, self.targets, strict=True)
        )
        need(in_order, "targets after their source, none twice")
        self.pooled = content.get("pooled_memory", False)
        need(type(self.pooled) is bool, "pooled_memory: true or false")
        self.seconds, self.bytes = (
            [exact(v["compute_s"]) for v in operators],
            [exact(t["volume_bytes"]) for t in tensors],
        )
        self.sizes, outputs, held = (
            [exact(v.get(key, 0)) for v in operators] for key in ("parameter_bytes", "activation_bytes", "memory_bytes")
        )
        self.memory = None if content.get("memory_bytes") is None else exact(content["memory_bytes"])
        self.microbatches, self.gpipe, self.recompute, self.trains = 0, False, True, training is not None
        if training is not None:
            need(training["schedule"] in ("1f1b", "gpipe"), "1f1b or gpipe")
            self.microbatches, self.gpipe = count(training["microbatches"]), training["schedule"] == "gpipe"
            self.recompute = training["recompute"]
            need(type(self.recompute) is bool, "recompute: true or false")
            copies = exact(training["weight_copies"])
            held = [own + copies * size for own, size in zip(held, self.sizes, strict=True)]
        else:
            outputs = [Fraction(0)] * len(operators)
        self.amounts = [self.sizes, held, outputs]
        # All denominators are powers of two, so that the largest is a common one.
        self.grain = max(each.denominator for each in (*held, *outputs))
        self.held, self.outputs = ([int(each * self.grain) for each in row] for row in (held, outputs))
        self.before, self.after = ([0] * len(operators) for _ in range(2))  # sets
        for source, found in zip(self.sources, self.targets, strict=True):
            for v in found:
                self.before[v] |= 1 << source
                self.after[source] |= 1 << v

    def room(self, shares: int) -> int | None:
        """What a stage of so many replicas may fill."""
        if self.memory is None:
            return None
        return math.floor(self.memory * (shares if self.pooled else 1) * SLACK * self.grain)

    def memory_of(self, members: int, behind: int) -> int:
        """What a stage needs in front of so many others."""
        inside, entering = list(bits(members)), 0
        for v in inside:
            entering |= self.before[v]
        fixed = sum(self.held[v] for v in inside)
        in_flight = self.microbatches if self.gpipe else min(self.microbatches, behind + 1)
        inputs = in_flight * sum(self.outputs[u] for u in bits(entering & ~members))
        if not self.recompute:
            return fixed + inputs + self.microbatches * sum(self.outputs[v] for v in inside)
        leaving: dict[int, int] = {}  # what is live until an operator has run
        peak = live = 0
        for v in inside:
            live += self.outputs[v]
            peak = max(peak, live)
            last = max((self.after[v] & members).bit_length() - 1, v)
            leaving[last] = leaving.get(last, 0) + self.outputs[v]
            live -= leaving.pop(v, 0)
        return fixed + inputs + peak

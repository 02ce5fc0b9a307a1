"""What every stage costs at a micro-batch size, as arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.kernels.program import most_in_flight

Array = Any


class _Sums:
    """Sums over many operator sets at once, as ``costs.Costs.sums`` has them one by one.

    Sums of whole numbers of bytes are exact in any order; others are taken from ``Costs``, as what a device holds is
    compared with its memory.
    """

    def __init__(self, costs: Costs, masks: Sequence[int]) -> None:
        instance = costs.instance
        width = (instance.num_operators + 7) // 8
        packed = np.frombuffer(b"".join(nodes.to_bytes(width, "little") for nodes in masks), np.uint8)
        bits = np.unpackbits(packed.reshape(len(masks), width), axis=1, bitorder="little")
        member = bits[:, : instance.num_operators].astype(bool)
        affine = np.array([each or (0.0, 0.0) for each in costs.affine]).reshape(-1, 2)
        affine = affine + np.array([each or (0.0, 0.0) for each in costs.reduces]).reshape(-1, 2)
        self.fixed, self.per_sample = member @ affine[:, 0], member @ affine[:, 1]
        self.listed = member @ np.array([each is None for each in costs.affine])
        source = member[:, [edge.source for edge in instance.edges]]
        target = member[:, [edge.target for edge in instance.edges]]
        sizes = np.array([edge.bytes_per_sample for edge in instance.edges], dtype=np.float64)
        self.cut_edges = (source != target).sum(axis=1)
        leaving = sizes * [costs.shards[edge.source].spread_outputs for edge in instance.edges]
        entering = sizes * [costs.shards[edge.target].spread_inputs for edge in instance.edges]
        self.cut_bytes = (source != target) @ sizes + ((source & ~target) @ leaving + (target & ~source) @ entering)
        weights = np.array([each.weight_bytes for each in costs.shards])
        activations = np.array([each.activation_bytes for each in costs.shards])
        self.weights = member @ weights
        self.kept = member @ activations + (target & ~source) @ sizes
        every = np.concatenate([weights, activations, sizes])
        if every.sum() >= 2**53 or (every % 1).any():
            self.weights = np.array([costs.sums(nodes).weight_bytes for nodes in masks])
            self.kept = np.array([costs.sums(nodes).kept_bytes for nodes in masks])


class StageTables:
    """What these stages (bitsets) cost on these data-parallel degrees, at the tensor-parallel degree of ``costs``.

    ``masks``, ``degrees``: the stages and the degrees, the latter ascending.
    ``base``, ``kept``: bytes of each stage's weights with their copies, and bytes per sample in flight.
    ``reduce``: seconds of each stage's all-reduce on each degree.
    """

    def __init__(self, costs: Costs, masks: Sequence[int], degrees: Array) -> None:
        self.costs, self.masks, self.degrees = costs, masks, degrees
        sums = _Sums(costs, masks)
        self._weights, self.kept = sums.weights, sums.kept
        self.base = costs.instance.weight_copies * self._weights
        self._fixed, self._per_sample = sums.fixed, sums.per_sample
        self._cut_bytes, self._cut_edges = sums.cut_bytes, sums.cut_edges
        self._listed = [number for number, listed in enumerate(sums.listed) if listed]
        self._last: tuple[int, Array, Array] | None = None
        self.reduce = self._all_reduce()

    def at(self, microbatch: int) -> tuple[Array, Array]:
        """``tps`` and ``room`` of a micro-batch size; those of the last one are kept."""
        if self._last is None or self._last[0] != microbatch:
            self._last = microbatch, self.tps(microbatch), self.room(microbatch)
        return self._last[1], self._last[2]

    def tps(self, microbatch: int) -> Array:
        """Seconds per sample of each stage on each degree, shape (stages, degrees); ``inf`` for idle replicas.

        And where an operator of the stage does not declare the tensor-parallel degree.
        """
        instance = self.costs.instance
        found = np.full((len(self.masks), len(self.degrees)), np.inf)
        lacking = [number for number, nodes in enumerate(self.masks) if nodes & self.costs.lacking]
        for column, degree in enumerate(self.degrees.tolist()):
            if degree > microbatch:
                continue
            samples = -(-microbatch // degree)
            step = self._fixed + self._per_sample * samples
            for number in self._listed:
                step[number] = self.costs.compute_s(self.masks[number], samples)
            moved = self._cut_bytes * samples / instance.bandwidth_bytes_per_s
            step += 2 * (moved + self._cut_edges * instance.latency_s)
            step[lacking] = np.inf
            found[:, column] = step / microbatch + self.reduce[:, column] / instance.minibatch
        return found

    def _all_reduce(self) -> Array:
        instance = self.costs.instance
        found = np.zeros((len(self.masks), len(self.degrees)))
        for column, degree in enumerate(self.degrees.tolist()):
            if degree > 1:
                volume = 2 * (degree - 1) / degree * self._weights
                bandwidth = instance.reduce_bandwidth(degree * self.costs.tp_degree)
                found[:, column] = volume / bandwidth + 2 * degree * instance.latency_s
        return found

    def room(self, microbatch: int) -> Array:
        """The most micro-batches in flight of each stage on each degree; 0 where not even one fits."""
        instance = self.costs.instance
        sizes = np.array([microbatch, instance.minibatch, instance.num_devices])
        return most_in_flight(self.base, self.kept, self.degrees, sizes, float(instance.memory_bytes))

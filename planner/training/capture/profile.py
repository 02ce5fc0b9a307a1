"""Forward and backward seconds of every node of a captured model, measured on the machine at hand.

Source: reconstructed. A node runs alone: its inputs are copies that take gradients, and its backward pass starts from
gradients of ones, so that nothing of its neighbours is measured with it.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from instances.generators.hardware import Hardware
from instances.problems.stage_partitioning import StageInstance, Tmpc
from instances.rules import Fact
from planner.process.errors import UsageError
from planner.training.capture.captured import Captured, Node
from planner.training.capture.choices import Choices, Work
from planner.training.capture.instances import stage_partitioning
from planner.training.capture.trace import placeholders


@dataclass(frozen=True)
class Measured:
    """Seconds of a node's passes, one for each repetition."""

    node: Node
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]

    @property
    def time_s(self) -> float:
        """The medians of both passes together."""
        return statistics.median(self.forward_s) + statistics.median(self.backward_s)

    @property
    def spread(self) -> float:
        """Between the slowest and the quickest repetition, over the median."""
        sums = [forward + backward for forward, backward in zip(self.forward_s, self.backward_s, strict=True)]
        return (max(sums) - min(sums)) / statistics.median(sums) if sums else 0.0


def profile_nodes(
    captured: Captured, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, repeats: int = 5, warmup: int = 1
) -> list[Measured]:
    """Run every node alone, ``warmup`` times and then ``repeats`` times.

    ``captured``: of a model with data in its parameters, on one device; ``args`` and ``kwargs`` are those it was
    captured with.
    `UsageError` if the model has no data.
    """
    if any(each.device.type == "meta" for each in captured.module.parameters()):
        raise UsageError.at(captured.name, "on the device meta", "a model with data in its parameters")
    run = _Nodes(captured, placeholders(captured.program, captured.module, args, dict(kwargs)))
    rounds = [run.round() for _ in range(warmup + repeats)][warmup:]
    return [
        Measured(node, tuple(each[node.id][0] for each in rounds), tuple(each[node.id][1] for each in rounds))
        for node in captured.nodes
    ]


def instance_of(
    captured: Captured, found: list[Measured], machine: Hardware, devices: int, work: Work, facts: Mapping[str, Fact]
) -> StageInstance:
    """The instance of a captured model with the measured times; memory and transfers are those that were counted.

    ``machine`` has the memory and the bandwidth of a device; its rates are not used.
    """
    plain = stage_partitioning(captured, machine, devices, work, Choices((1,), link_efficiency=1.0), facts)
    layers = []
    for layer, measured in zip(plain.layers, found, strict=True):
        again = statistics.median(measured.forward_s)
        kept, *recomputed = layer.tmpcs[1]
        timed: list[Tmpc] = [replace(kept, time=measured.time_s)]
        timed += [replace(each, time=measured.time_s + again) for each in recomputed]
        # Gradients of weights are not measured: they have the part of the time that was counted.
        of_weights = {t: measured.time_s * time / kept.time for t, time in layer.weight_times.items() if kept.time}
        layers.append(replace(layer, tmpcs={1: tuple(timed)}, weight_times=of_weights))
    return replace(plain, layers=tuple(layers))


class _Nodes:
    """Runs the nodes of a captured model one after the other, each apart from the others."""

    def __init__(self, captured: Captured, inputs: Mapping[str, Any]) -> None:
        self.captured = captured
        self.runner = torch.fx.Interpreter(captured.module, garbage_collect_values=False)
        self.graph = {each.name: each for each in captured.module.graph.nodes}
        self.inputs = inputs
        cuda = any(each.is_cuda for each in captured.module.parameters())
        self.finish: Callable[[], None] = torch.cuda.synchronize if cuda else lambda: None
        self.taken: dict[int, list[str]] = {node.id: [] for node in captured.nodes}
        self.given: dict[int, list[str]] = {node.id: [] for node in captured.nodes}
        for transfer in captured.transfers:
            self.given[transfer.source].append(transfer.op)
            for target in transfer.targets:
                self.taken[target].append(transfer.op)
        for each in next(node for node in captured.module.graph.nodes if node.op == "output").all_input_nodes:
            if each.name in captured.node_of:
                self.given[captured.node_of[each.name]].append(each.name)

    def round(self) -> dict[int, tuple[float, float]]:
        """Seconds of the forward and the backward pass of every node, once."""
        env = self.runner.env = {}
        for each in self.captured.module.graph.nodes:
            if each.op == "placeholder":
                env[each] = self.inputs[each.name]
            elif each.op == "get_attr" or each.name in self.captured.replicated:
                env[each] = self.runner.run_node(each)
        return {node.id: self._passes(node, env) for node in self.captured.nodes}

    def _passes(self, node: Node, env: dict[Any, Any]) -> tuple[float, float]:
        """Both passes of a node; what it hands on is left in ``env`` without its history."""
        for name in self.taken[node.id]:
            value = env[self.graph[name]]
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                wanted = self.captured.costs[name].gradient
                env[self.graph[name]] = value.detach().requires_grad_(wanted).clone()
        self.finish()
        started = time.perf_counter()
        for name in node.ops:
            env[self.graph[name]] = self.runner.run_node(self.graph[name])
        self.finish()
        forward = time.perf_counter() - started
        ends = [each for name in dict.fromkeys(self.given[node.id]) for each in _differentiable(env[self.graph[name]])]
        gradients = [torch.ones_like(each) for each in ends]
        self.finish()
        started = time.perf_counter()
        if ends:
            torch.autograd.backward(ends, gradients)
        self.finish()
        backward = time.perf_counter() - started
        for parameter in self.captured.module.parameters():
            parameter.grad = None
        for name in self.given[node.id]:
            env[self.graph[name]] = _detach(env[self.graph[name]])
        return forward, backward


def _differentiable(value: Any) -> list[torch.Tensor]:
    parts = value if isinstance(value, list | tuple) else [value]
    return [each for each in parts if isinstance(each, torch.Tensor) and each.requires_grad]


def _detach(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value

"""What the backward pass of a node needs beside what forward passes keep: gradients of activations, and of weights.

A backward pass goes through the ops in reverse. The gradient of an op's input is a tensor of its own, but for views and
sums, which hand on the one that they get. It lives until the op that made the input is done; the gradient of a
parameter until it is added to the one that is there. What an op made inside and keeps (the logarithms of a softmax) has
a gradient as large, meanwhile. What an op kept is freed when it is done.

Source: reconstructed from PyTorch's autograd, and held against its allocator on a GPU (docs/running-plans.md).
"""

from typing import Any

import torch

from planner.training.capture.captured import Captured, Node

aten: Any = torch.ops.aten
_SUMS = frozenset({aten.add.Tensor, aten.add_.Tensor})


def working_bytes(captured: Captured, node: Node) -> float:
    """The most bytes that its backward pass has beside what all forward passes left, at least 0."""
    own, costs = set(node.ops), captured.costs
    graph = {each.name: each for each in captured.module.graph.nodes if each.name in own}
    trained = {each.name: each.size for each in node.parameters if each.trained}
    sizes: list[float] = []  # of tensors
    held: dict[str, int] = {}  # the tensor with the gradient of an op's output

    def make(name: str) -> None:
        held[name] = len(sizes)
        sizes.append(costs[name].output_bytes)

    for name in node.ops:
        if costs[name].gradient and any(user.name not in own for user in graph[name].users):
            make(name)
    most = freed = 0.0
    for name in (each for each in reversed(node.ops) if costs[each].gradient):
        cost, op = costs[name], graph[name]
        if name not in held:
            make(name)
        hands_on = not cost.moved_bytes or op.target in _SUMS
        passing = 0.0
        for each in op.all_input_nodes:
            if each.op == "get_attr":
                if cost.moved_bytes:  # a view of a parameter hands on its gradient
                    passing += trained.get(captured.names.get(str(each.target), ""), 0.0)
            elif each.op == "call_function" and costs[each.name].gradient:
                if each.name in held:  # the second gradient is added to the first one
                    passing += 0.0 if hands_on else costs[each.name].output_bytes
                elif hands_on:
                    held[each.name] = held[name]
                else:
                    make(each.name)
        inside = max(0.0, cost.saved[name] - cost.output_bytes)
        most = max(most, sum(sizes[tensor] for tensor in set(held.values())) + passing + inside - freed)
        freed += cost.saved_bytes
        del held[name]
    return most

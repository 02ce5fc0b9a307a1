"""A backward pass in two halves: the gradients of what a stage received (B), then those of its weights (W).

B stops where the way to a weight leaves the way to what was received, and keeps the gradient that arrives there; W goes
on from these places. No part of the graph is gone through twice, so nothing is summed twice. What was not kept is
computed again for each half.

Source: Qi et al. 2024 (B and W); torch.distributed.pipelining (``stage_backward_input``) keeps gradients there, too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


class Wanted:
    """The halves that are made now, for functions whose own backward pass makes gradients of inputs and weights."""

    kinds = "BW"


@dataclass
class Later:
    """What W does: for each place its node, the edges that leave it towards weights, and the gradients that arrived.

    ``roots`` with their gradients lead to weights alone.
    """

    places: list[tuple[Any, list[Any], list[Any]]] = field(default_factory=list)
    roots: list[tuple[Any, Any]] = field(default_factory=list)


def backward_to_inputs(
    roots: Sequence[Any], gradients: Sequence[Any], leaves: Sequence[Any]
) -> tuple[list[Any], Later]:
    """The gradients of ``leaves`` (``None`` for one that no root needs), and what is left to do.

    ``roots``, ``gradients``: tensors or edges of the graph, and the gradients that come from behind them.
    """
    import torch
    from torch.autograd.graph import GradientEdge, get_gradient_edge

    edges = [root if isinstance(root, GradientEdge) else get_gradient_edge(root) for root in roots]
    if not leaves or not edges:
        return [None] * len(leaves), Later(roots=list(zip(edges, gradients, strict=True)))
    leading = _leading({edge.node for edge in edges}, {get_gradient_edge(leaf).node for leaf in leaves})
    later = Later(roots=[pair for pair in zip(edges, gradients, strict=True) if pair[0].node not in leading])
    hooks = []
    for node in leading:
        apart = [GradientEdge(*each) for each in node.next_functions if each[0] is not None and each[0] not in leading]
        if apart:
            arrived: list[Any] = []
            hooks.append(node.register_prehook(arrived.extend))
            later.places.append((node, apart, arrived))
    with _wanted("B"):
        found = torch.autograd.grad(roots, leaves, gradients, retain_graph=True, allow_unused=True)
    for hook in hooks:
        hook.remove()
    return list(found), later


def backward_to_weights(later: Later) -> None:
    """Add the gradients of weights to them."""
    import torch
    from torch.autograd.graph import GradientEdge
    from torch.utils.checkpoint import GraphExecGroup

    pairs = list(later.roots)
    with GraphExecGroup():  # what was not kept is computed again once for all places
        for node, apart, arrived in later.places:
            given = [(GradientEdge(node, place), each) for place, each in enumerate(arrived) if each is not None]
            if given:
                edges, gradients = zip(*given, strict=True)
                with _wanted("W"):
                    made = torch.autograd.grad(edges, apart, gradients, allow_unused=True)
                pairs += [pair for pair in zip(apart, made, strict=True) if pair[1] is not None]
        if pairs:
            torch.autograd.backward(*zip(*pairs, strict=True))


@contextmanager
def _wanted(kinds: str) -> Iterator[None]:
    Wanted.kinds = kinds
    try:
        yield
    finally:
        Wanted.kinds = "BW"


def _leading(starts: set[Any], ends: set[Any]) -> dict[Any, None]:
    """The nodes of the graph behind ``starts`` from which a way leads to ``ends``; each behind those it leads to."""
    found, seen, waiting = dict.fromkeys(ends), set(ends), [(start, False) for start in starts]
    while waiting:
        node, is_left = waiting.pop()
        behind = [each for each, _ in node.next_functions if each is not None]
        if is_left:
            if any(each in found for each in behind):
                found[node] = None
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting += [(each, False) for each in behind if each not in seen]
    return found

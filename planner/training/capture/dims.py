"""Where the split dimension of a tensor goes, op by op: equal shares of it have to stay equal shares.

A matrix that makes queries, keys and values at once is shared by columns; what its result is taken apart into must be
shared equally as well. One head of keys beside many of queries is not, nor are heads that a view puts behind samples.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from planner.training.capture.ops import is_attention

aten: Any = torch.ops.aten

Shape = Sequence[int]
#: Shares of the split dimension are no equal shares of any dimension of the result.
MIXED = -1

_VIEWS = frozenset(
    {aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints, aten.unflatten.int}
)


def follow_split(op: Any, before: Shape, after: Shape, dim: int) -> int | None:
    """The split dimension of an op's result; `MIXED` if it has none, ``None`` if that is not known here.

    ``op``: of the graph.
    ``before``, ``after``: shapes of the input that is split, and of the (first) result.
    ``dim``: the split dimension of the input.
    """
    target, rank = op.target, len(before)
    if target in _VIEWS:
        return _dim_of_view(before, after, dim)
    if target is aten.transpose.int:
        one, other = (int(each) % rank for each in op.args[1:3])
        return {one: other, other: one}.get(dim, dim)
    if target in (aten.t.default, aten.numpy_T.default):
        return rank - 1 - dim
    if target is aten.permute.default:
        return [int(each) % rank for each in op.args[1]].index(dim)
    if target is aten.unsqueeze.default:
        return dim + (int(op.args[1]) % (rank + 1) <= dim)
    if target in (aten.select.int, aten.unbind.int):
        gone = int(op.args[1] if len(op.args) > 1 else 0) % rank
        return MIXED if gone == dim else dim - (gone < dim)
    if target is aten.cat.default:
        joined = int(op.args[1] if len(op.args) > 1 else 0) % rank
        return MIXED if joined == dim else dim
    if is_attention(op):
        return MIXED if dim >= rank - 2 else len(after) - rank + dim
    return _align(before, after, dim)


def _dim_of_view(before: Shape, after: Shape, dim: int) -> int:
    """The dimension with as many places before it, if shares of one are shares of the other."""
    if before[dim] == 1:
        return MIXED
    places, size = math.prod(before[:dim]), before[dim]
    for other, extent in enumerate(after):
        if extent > 1 and math.prod(after[:other]) == places:
            return other if size % extent == 0 or extent % size == 0 else MIXED
    return MIXED


def _align(before: Shape, after: Shape, dim: int) -> int | None:
    """The same dimension, counted from the last one: of ops by element, of parts along it, of what spreads others."""
    place = len(after) - len(before) + dim
    return place if place >= dim and after[place] <= before[dim] else None

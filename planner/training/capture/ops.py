"""The ops of exported graphs that need a rule of their own."""

import operator
from typing import Any

import torch

aten: Any = torch.ops.aten

#: Attention in one op; what it keeps depends on the device, and is set apart (`planner.training.capture.measure`).
ATTENTION = frozenset({aten.scaled_dot_product_attention.default})
#: Matrix products whose second operand may be a parameter, and where that operand is.
PRODUCTS = {
    aten.linear.default: 1,
    aten.matmul.default: 1,
    aten.mm.default: 1,
    aten.addmm.default: 2,
    aten._grouped_mm.default: 1,
}
LOOKUPS = frozenset({aten.embedding.default})
#: Ops of the export that check and compute nothing.
CHECKS = frozenset({aten._assert_tensor_metadata.default, aten._assert_async.msg, aten._assert_async.default})
#: Ops over a whole dimension, of norms: a split one needs an exchange.
REDUCTIONS = frozenset(
    {aten.mean.dim, aten.layer_norm.default, aten.rms_norm.default, aten.var.correction, aten.batch_norm.default}
)
#: Ops that choose by value: what gives their input is a router.
SELECTIONS = frozenset({aten.topk.default, aten.argmax.default, aten.sort.default})
PICKS = frozenset({operator.getitem})


#: Ops that give the numbers of their input one by one, besides those that PyTorch says are of that kind.
_COPIES = frozenset(
    {aten.to.dtype, aten.to.dtype_layout, aten.alias.default, aten.contiguous.default, aten.clone.default}
    | {aten.view.default, aten.reshape.default, aten.dropout.default}
)


def is_elementwise(op: Any) -> bool:
    """Whether an op of one shape treats its numbers one by one."""
    return op.target in _COPIES or torch.Tag.pointwise in getattr(op.target, "tags", ())


def is_norm(op: Any) -> bool:
    """Whether an op reduces, or norms over, the last dimension alone."""
    if op.target is aten.mean.dim:
        return list(op.args[1]) == [-1]
    return op.target in (aten.layer_norm.default, aten.rms_norm.default) and len(op.args[1]) == 1


def is_in_place(target: Any) -> bool:
    """Whether an op writes into one of its inputs."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def is_attention(node: Any) -> bool:
    """Whether a node of the graph is a product of activations: attention, or a part of it."""
    return node.target in ATTENTION or node.target in (aten.matmul.default, aten.bmm.default, aten.baddbmm.default)

"""What a captured model is (nouns): nodes, the ops in them, and the tensors between them."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from instances.generators.transformer import RECOMPUTE, VANILLA
from instances.problems.stage_partitioning import KeptTensor, SharedTensor
from instances.rules import NodeId

#: More downsets than this are not counted.
MOST_DOWNSETS = 20_000


@dataclass
class OpCost:
    """What one op costs in one forward pass over a micro-batch.

    ``flops`` counts a multiplication and an addition as two. ``saved`` is what autograd keeps for the backward pass and
    no earlier op of the graph kept: bytes of storages, by the op that made each (its own name for what is made
    inside). ``keeps`` has the bytes of all storages that it keeps, by a number of each, whoever kept it before, and
    ``outputs`` those of its outputs.
    ``moved_bytes`` are read and written, 0 for views. ``output_bytes`` is the size of its outputs as they
    would be sent; ``gradient`` is whether a gradient comes back.
    """

    flops: float = 0.0
    saved: Counter[str] = field(default_factory=Counter)
    keeps: dict[int, float] = field(default_factory=dict)
    outputs: dict[int, float] = field(default_factory=dict)
    moved_bytes: float = 0.0
    output_bytes: float = 0.0
    gradient: bool = False
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def saved_bytes(self) -> float:
        """All that autograd keeps for it."""
        return float(sum(self.saved.values()))


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model, by the first of its names; ``trained``: it has a gradient."""

    name: str
    size: float
    shape: tuple[int, ...]
    trained: bool = True


@dataclass(frozen=True)
class Node:
    """A node of the instance.

    ``ops`` are names of ``call_function`` nodes of the graph, in its order. ``parameters`` are those that it reads.
    """

    id: int
    name: str
    module: str
    role: str
    ops: tuple[str, ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Transfer:
    """A tensor that ops of other nodes take: the op that makes it, its node, the nodes that take it, and its bytes.

    ``gradient``: as many bytes come back from each of them.
    """

    op: str
    source: int
    targets: tuple[int, ...]
    size: float
    gradient: bool


@dataclass(frozen=True)
class Captured:
    """A model as a graph of nodes.

    ``program``: the `torch.export.ExportedProgram`.
    ``module``: ``program`` as one `torch.fx.GraphModule` with the model's own parameters as attributes; ops that only
    check are removed.
    ``nodes``: in a topological order; ``Node.id`` is the place.
    ``node_of``: the node of every ``call_function`` op of ``module.graph`` that data flow through.
    ``replicated``: the other ops (masks, positions): no gradient comes back to them, and every stage that needs one
    makes its own.
    ``costs``: of every op, by name.
    ``names``: the attributes of ``module`` that are parameters, and the first name that the model has for each.
    ``transfers``: tensors between nodes.
    ``tied``: names of parameters that several nodes read, and these nodes.
    ``downsets``: of the graph of nodes; ``None``: more than ``MOST_DOWNSETS``.
    ``warnings``: what may be wrong with the figures.
    """

    name: str
    program: Any
    module: Any
    nodes: tuple[Node, ...]
    node_of: Mapping[str, int]
    replicated: frozenset[str]
    costs: Mapping[str, OpCost]
    names: Mapping[str, str]
    transfers: tuple[Transfer, ...]
    tied: Mapping[str, tuple[int, ...]]
    downsets: int | None
    warnings: tuple[str, ...]

    @property
    def edges(self) -> dict[tuple[int, int], list[Transfer]]:
        """The tensors between every two nodes."""
        found: dict[tuple[int, int], list[Transfer]] = {}
        for transfer in self.transfers:
            for target in transfer.targets:
                found.setdefault((transfer.source, target), []).append(transfer)
        return found

    def flops(self) -> float:
        """Operations of a forward pass over a micro-batch."""
        return sum(self.costs[op].flops for op in self.node_of)

    def saved_bytes(self) -> float:
        """What autograd keeps of a micro-batch."""
        return sum(self.costs[op].saved_bytes for op in self.node_of)

    def parameter_bytes(self) -> float:
        """Bytes of the parameters, tied ones once."""
        return sum({each.name: each.size for node in self.nodes for each in node.parameters}.values())


def edge_bytes(captured: Captured) -> dict[tuple[int, int], float]:
    """Bytes between every two nodes; cost models count an edge for both passes, so one without a gradient is half."""
    return {
        pair: sum(each.size * (1.0 if each.gradient else 0.5) for each in found)
        for pair, found in captured.edges.items()
    }


def shared_tensors(captured: Captured) -> tuple[SharedTensor, ...]:
    """The tensors that several nodes take, counted as `edge_bytes` counts them."""
    return tuple(
        SharedTensor(each.source, each.targets, each.size * (1.0 if each.gradient else 0.5))
        for each in captured.transfers
        if len(each.targets) > 1
    )


def kept_tensors(captured: Captured) -> tuple[KeptTensor, ...]:
    """The activations that several nodes keep: those of their ops, or their inputs where these are computed again.

    The first node of each is the one whose TMPC counts it (`OpCost.saved`; the inputs of recomputation).
    """
    size: dict[int, float] = {}
    keepers: dict[int, dict[NodeId, None]] = {}
    for op, cost in captured.costs.items():  # in the order of the graph
        if op in captured.node_of:
            for number, found in cost.keeps.items():
                size[number] = found
                keepers.setdefault(number, {})[captured.node_of[op]] = None
    total: dict[tuple[tuple[NodeId, ...], str], float] = defaultdict(float)
    for number, nodes in keepers.items():
        total[tuple(nodes), VANILLA] += size[number]
    for transfer in captured.transfers:
        total[tuple(transfer.targets), RECOMPUTE] += transfer.size
    return tuple(KeptTensor(nodes, (name,), found) for (nodes, name), found in total.items() if len(nodes) > 1)

"""TMPC knapsack: one TMPC per node, least total time, total memory within a capacity (nouns only).

Source: Piper, section 4, "The knapsack subproblem".
"""

import random
from dataclasses import dataclass, field

from instances.errors import InstanceError, expect_unique
from instances.exchange import in_files
from instances.rules import Amount, Declared, Facts, Identifier, NodeId

#: Kinds of random instances: see ``generate``.
KINDS = ("layers", "uncorrelated", "correlated", "subset-sum")

_GIB = 2**30


@dataclass(frozen=True)
class Choice:
    """One TMPC of a node: its whole contribution to the stage's time, and its memory in bytes."""

    id: Identifier
    time: Amount
    memory_bytes: Amount


@dataclass(frozen=True)
class KnapsackNode:
    """A node and its TMPCs (at least one; ids unique)."""

    id: NodeId
    options: tuple[Choice, ...]


@in_files("name", "capacity_bytes", "nodes", problem="tmpc_knapsack", absent={"name": "knapsack"})
@dataclass(frozen=True)
class KnapsackInstance(Declared):
    """Nodes, capacity M in bytes, and where the instance arose (``origin``: free text fields)."""

    name: Identifier
    nodes: tuple[KnapsackNode, ...]
    capacity_bytes: Amount
    origin: Facts = field(default_factory=dict)


def check(instance: KnapsackInstance, where: str) -> None:
    """Rules between fields; no node at all is allowed.

    Raises
    ------
    InstanceError
        Nodes without options, ids that occur twice (node 1 and node "1" are the same).
    """
    expect_unique([node.id for node in instance.nodes], where, "nodes")
    for position, node in enumerate(instance.nodes):
        if not node.options:
            raise InstanceError.at(where, f"nodes[{position}].options", [], "at least one option")
        if len({option.id for option in node.options}) < len(node.options):
            expect_unique([option.id for option in node.options], where, "nodes", position, "options")


def generate(
    num_nodes: int = 40, num_options: int = 2, *, kind: str = "layers", tightness: float = 0.5, seed: int = 0
) -> KnapsackInstance:
    """A random instance that is feasible; the same arguments give the same instance.

    Parameters
    ----------
    num_nodes, num_options
        Size; ``num_options`` TMPCs for every node.
    kind
        ``layers``: few distinct kinds of layers, slower options store less, as recomputation does.
        ``uncorrelated``: times and sizes independent. ``correlated``: time saved is bytes plus a constant, hard for
        ratio rules. ``subset-sum``: time saved is bytes, so that all ratios are equal.
    tightness
        The capacity, from 0 (only the smallest choices fit) to 1 (the largest fit together).

    Raises
    ------
    ValueError
        Unknown kind, or a number out of its range.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; expected {' or '.join(KINDS)}")
    if num_nodes < 0 or num_options < 1 or not 0 <= tightness <= 1:
        raise ValueError("expected num_nodes >= 0, num_options >= 1 and 0 <= tightness <= 1")
    rng = random.Random(f"{kind} {num_nodes} {num_options} {seed}")
    palette = [_options(rng, num_options, kind) for _ in range(3 if kind == "layers" else num_nodes)]
    nodes = tuple(
        KnapsackNode(node, rng.choice(palette) if kind == "layers" else palette[node]) for node in range(num_nodes)
    )
    least = sum(min(option.memory_bytes for option in node.options) for node in nodes)
    most = sum(max(option.memory_bytes for option in node.options) for node in nodes)
    return KnapsackInstance(
        name=f"{kind}-{num_nodes}x{num_options}-{seed}",
        nodes=nodes,
        capacity_bytes=float(round(least + tightness * (most - least))),
        origin={"kind": kind, "tightness": tightness, "seed": seed},
    )


def _options(rng: random.Random, num_options: int, kind: str) -> tuple[Choice, ...]:
    sizes = sorted((rng.randint(1, _GIB) for _ in range(num_options)), reverse=True)
    if kind == "uncorrelated":
        times = [rng.uniform(0.001, 0.1) for _ in sizes]
    elif kind == "layers":
        times = [0.03 * (1 + 0.33 * position) * rng.uniform(0.95, 1.05) for position in range(num_options)]
    else:
        constant = 0.05 if kind == "correlated" else 0.0
        times = [(sizes[0] - size) / _GIB + (constant if position else 0.0) for position, size in enumerate(sizes)]
    return tuple(
        Choice(f"option {position}", time, float(size))
        for position, (time, size) in enumerate(zip(times, sizes, strict=True))
    )

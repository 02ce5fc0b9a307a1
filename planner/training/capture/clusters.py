"""Ops of a traced model gathered into the nodes of an instance: a quotient of the graph that has no cycles.

Source: reconstructed. Pure Python: no torch here.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Granularity(StrEnum):
    """A node for each block of the model, or for each op that computes."""

    BLOCK = "block"
    OP = "op"


@dataclass(frozen=True)
class Traced:
    """An op: the ops whose outputs it takes, the path of its module, whether it has operations or parameters.

    ``joined``: it belongs to the node of its first input, such as one of the outputs of an op that has several.
    """

    inputs: tuple[str, ...]
    path: str = ""
    weighs: bool = False
    joined: bool = False


def shared_activations(ops: Mapping[str, Traced], reading: Collection[str]) -> set[str]:
    """The ops that data flow through: those ``reading`` parameters, and what follows from them.

    The others (masks, positions, tables of angles) are cheap to make wherever they are needed, and no gradient comes
    back to them. ``ops`` are in a topological order.
    """
    found: set[str] = set()
    for name, op in ops.items():
        if name in reading or not found.isdisjoint(op.inputs):
            found.add(name)
    return found


def cluster_ops(ops: Mapping[str, Traced], modules: Mapping[str, str], granularity: Granularity) -> list[list[str]]:
    """The ops of every node, nodes and ops in a topological order.

    ``ops``: in a topological order; inputs that are not among them are left out.
    ``modules``: the classes of the model's modules by path.
    """
    key = (lambda _: None) if granularity is Granularity.OP else keys(modules, [op.path for op in ops.values()])
    label = _label_ops(ops, key)
    label = _acyclic(ops, label)
    label = _absorb_light(ops, label)
    return _order(ops, label)


def keys(modules: Mapping[str, str], paths: Collection[str]) -> Callable[[str], str | None]:
    """Which part of the model a path belongs to: a block, else the largest module around it that has no blocks.

    Blocks are modules whose path ends in a number, such as ``layers.3``, the outermost ones that are not groups of
    blocks themselves. A model without blocks is parted into its innermost modules. ``None``: an op of a container.
    """
    blocks = _blocks(modules)
    around = {".".join(path.split(".")[:end]) for path in blocks for end in range(1, path.count(".") + 1)}
    inside = {".".join(path.split(".")[:end]) for path in paths for end in range(1, path.count(".") + 1)}

    def key(path: str) -> str | None:
        parts = path.split(".") if path else []
        prefixes = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        block = next((prefix for prefix in prefixes if prefix in blocks), None)
        if block is not None or blocks:
            return block or next((prefix for prefix in prefixes if prefix not in around), None)
        return path if path and path not in inside else None

    return key


def is_block(modules: Mapping[str, str]) -> Callable[[str], bool]:
    """Whether a path is that of a block."""
    blocks = _blocks(modules)
    return lambda path: path in blocks


def _blocks(modules: Mapping[str, str]) -> set[str]:
    numbered = [path for path in modules if path.rpartition(".")[2].isdigit()]
    has_children = {path.rpartition(".")[0] for path in modules}
    groups = set()
    for path in numbered:
        head, _, _ = path.rpartition(".")
        group = head.rpartition(".")[0]
        second = f"{head}.1"
        structured = any(f"{path}.{name}" in has_children for name in _children(path, modules))
        same = path.endswith(".0") and modules.get(second) == modules[path]
        if same and structured and group.rpartition(".")[2].isdigit():
            groups.add(group)
    blocks: set[str] = set()
    for path in sorted(numbered, key=lambda each: each.count(".")):
        parts = path.split(".")
        if path not in groups and not any(".".join(parts[:end]) in blocks for end in range(1, len(parts))):
            blocks.add(path)
    return blocks


def _children(path: str, modules: Mapping[str, str]) -> set[str]:
    start = f"{path}."
    return {other[len(start) :].partition(".")[0] for other in modules if other.startswith(start)}


def _label_ops(ops: Mapping[str, Traced], key: Callable[[str], str | None]) -> dict[str, str]:
    """The first op of the part that each op belongs to; parts other than blocks fall into connected components."""
    label: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    for name, op in ops.items():
        part = key(op.path)
        if op.joined and op.inputs and op.inputs[0] in ops:
            part = key(ops[op.inputs[0]].path)
        parts.setdefault(f"part {part}" if part is not None else f"op {name}", []).append(name)
    for members in parts.values():
        inside = set(members)
        leader = {name: name for name in members}

        def lead(name: str, leader: dict[str, str] = leader) -> str:
            while leader[name] != name:
                leader[name] = leader[leader[name]]
                name = leader[name]
            return name

        for name in members:
            for source in inside.intersection(ops[name].inputs):
                leader[lead(name)] = lead(source)
        label.update({name: lead(name) for name in members})
    for name, op in ops.items():
        if op.joined and op.inputs and op.inputs[0] in label:
            label[name] = label[op.inputs[0]]
    return label


def _quotient(ops: Mapping[str, Traced], label: Mapping[str, str]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Predecessors and successors of every label."""
    before: dict[str, set[str]] = {each: set() for each in label.values()}
    after: dict[str, set[str]] = {each: set() for each in label.values()}
    for name, op in ops.items():
        for source in op.inputs:
            if source in label and label[source] != label[name]:
                before[label[name]].add(label[source])
                after[label[source]].add(label[name])
    return before, after


def _acyclic(ops: Mapping[str, Traced], label: Mapping[str, str]) -> dict[str, str]:
    """Labels on one cycle become one."""
    import networkx

    graph = networkx.DiGraph()
    before, _ = _quotient(ops, label)
    graph.add_nodes_from(before)
    graph.add_edges_from((source, target) for target, sources in before.items() for source in sources)
    leader = {each: min(component) for component in networkx.strongly_connected_components(graph) for each in component}
    return {name: leader[each] for name, each in label.items()}


def _absorb_light(ops: Mapping[str, Traced], label: dict[str, str]) -> dict[str, str]:
    """Labels without operations and parameters join their one predecessor, or else their one successor.

    Neither makes a cycle: a second path between the two would enter, or leave, by another neighbour.
    """
    before, after = _quotient(ops, label)
    weighty = {label[name] for name, op in ops.items() if op.weighs}
    into: dict[str, str] = {}
    waiting = [each for each in before if each not in weighty]
    while waiting:
        light = waiting.pop()
        if light in into or light in weighty:
            continue
        near = before[light] if len(before[light]) == 1 else after[light] if len(after[light]) == 1 else None
        if near is None:
            continue
        (host,) = near
        into[light] = host
        for side, other in ((before, after), (after, before)):
            for neighbour in side.pop(light):
                other[neighbour].discard(light)
                if neighbour != host:
                    other[neighbour].add(host)
                    side[host].add(neighbour)
        waiting += [each for each in (host, *before[host], *after[host]) if each not in weighty]

    def last(each: str) -> str:
        while each in into:
            each = into[each]
        return each

    return {name: last(each) for name, each in label.items()}


def _order(ops: Mapping[str, Traced], label: Mapping[str, str]) -> list[list[str]]:
    from instances.graph import topological_order

    members: dict[str, list[str]] = {}
    for name in ops:
        members.setdefault(label[name], []).append(name)
    number = {each: place for place, each in enumerate(members)}
    before, _ = _quotient(ops, label)
    edges = [(number[source], number[target]) for target, sources in before.items() for source in sources]
    found = list(members.values())
    return [found[place] for place in topological_order(len(found), edges)]


_ENCODER, _DECODER = re.compile(r"(^|\.|_)encoder(\.|_|$)"), re.compile(r"(^|\.|_)decoder(\.|_|$)")


def role_of(path: str, kind: str, model: str, *, block: bool, first: bool, last: bool, computes: bool) -> str:
    """What a node is in its model, or nothing where that is not known.

    ``path``, ``kind``: of its module; ``kind`` is the class.
    ``model``: the class of the whole model.
    ``block``, ``first``, ``last``, ``computes``: whether it is a block, has no node before it, has none after it, has
    operations.
    """
    if block:
        for role, pattern in (("decoder", _DECODER), ("encoder", _ENCODER)):
            if pattern.search(path):
                return role
        for role in ("Decoder", "Encoder"):
            if role in kind:
                return role.lower()
        return "decoder" if model.endswith(("ForCausalLM", "LMHeadModel")) else "block"
    if first or "embed" in path.lower():
        return "embedding"
    if not computes:
        return "norm" if "norm" in f"{path}{kind}".lower() or re.search(r"(^|\.|_)ln", path) else ""
    return "head" if last else ""


def node_numbers(sequence: Sequence[list[str]]) -> dict[str, int]:
    """The node of every op."""
    return {name: node for node, members in enumerate(sequence) for name in members}

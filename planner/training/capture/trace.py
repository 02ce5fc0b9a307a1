"""A model traced by torch.export, measured, and gathered into the nodes of an instance: `capture`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch

from planner.process.errors import UsageError
from planner.process.target import words
from planner.training.capture import clusters
from planner.training.capture.captured import MOST_DOWNSETS, Captured, Node, OpCost, Parameter, Transfer
from planner.training.capture.clusters import Granularity, Traced
from planner.training.capture.measure import measure_ops
from planner.training.capture.models import quiet
from planner.training.capture.ops import CHECKS, LOOKUPS, PICKS
from solvers.gc_pause import no_collection

#: Share of all operations above which those of replicated ops are reported.
_MUCH = 0.01
#: Ops that read a matrix of parameters and rightly count no operations.
_LOOKING = ("embedding", "index", "gather", "slice", "select", "add", "mul", "to", "clone", "expand", "cat", "norm")


def capture(
    model: torch.nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "model",
    granularity: str = Granularity.BLOCK,
) -> Captured:
    """Trace a model on the inputs of one micro-batch, measure its ops, and gather them into nodes.

    ``model``: in the mode (training, evaluation) that it will run in; if all parameters are on ``meta``, so is what it
    makes.
    ``args``, ``kwargs``: of one call.
    ``name``: for errors, and of the instance.
    ``granularity``: ``block`` or ``op`` (`clusters.Granularity`).
    `UsageError` if torch.export cannot trace the model, or no op reads a parameter.
    Source: Reconstructed; `clusters.gathered` and `measure.measure_ops` say what is counted and how.
    """
    kwargs = dict(kwargs or {})
    devices = {each.device for each in model.parameters()}
    with quiet(), no_collection(), torch.device("meta") if devices == {torch.device("meta")} else nullcontext():
        try:
            program = torch.export.export(model, args, kwargs, strict=False)
        except Exception as error:  # of the model, or of any part of torch.export
            rule = "a model that torch.export can trace with these inputs"
            raise UsageError(f"{name}: trace is {words(error)!r}; expected {rule}") from error
        module = _plain(program)
        costs = measure_ops(module, placeholders(program, module, args, kwargs))
    return _assemble(model, program, module, costs, name, Granularity(granularity))


def _plain(program: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """The program as one module, without checks."""
    module: Any = program.module(check_guards=False)
    for node in reversed(list(module.graph.nodes)):
        if node.op == "call_module" or (node.op == "call_function" and node.target in CHECKS):
            module.graph.erase_node(node)
    module.recompile()
    return module


def placeholders(
    program: torch.export.ExportedProgram, module: torch.fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The values of the graph's placeholders by name, from the arguments of a call."""
    from torch.utils._pytree import tree_leaves

    ordered = {name: kwargs[name] for name in _keywords(program)}
    leaves = tree_leaves((args, ordered))
    names = [str(node.name) for node in module.graph.nodes if node.op == "placeholder"]
    return dict(zip(names, leaves, strict=True))


def _keywords(program: torch.export.ExportedProgram) -> list[str]:
    """Names of keyword arguments in the order of the graph."""
    given = program.example_inputs
    return list(given[1]) if given is not None else []


def _assemble(
    model: torch.nn.Module,
    program: torch.export.ExportedProgram,
    module: torch.fx.GraphModule,
    costs: dict[str, OpCost],
    name: str,
    granularity: Granularity,
) -> Captured:
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    parameters = _parameters(model, module)
    read = _read(calls, parameters)
    traced = {
        node.name: Traced(
            tuple(each.name for each in node.all_input_nodes if each.op == "call_function"),
            _path(node),
            bool(costs[node.name].flops or read[node.name]),
            node.target in PICKS,
        )
        for node in calls
    }
    through = clusters.shared_activations(traced, {op for op, found in read.items() if found})
    if not through:
        raise UsageError(f"{name}: parameters is 0; expected a model with parameters that its output depends on")
    flow = {op: each for op, each in traced.items() if op in through}
    modules = {path: type(found).__name__ for path, found in model.named_modules()}
    members = clusters.cluster_ops(flow, modules, granularity)
    node_of = clusters.node_numbers(members)
    transfers = _transfers(calls, node_of, costs)
    pairs = sorted({(each.source, target) for each in transfers for target in each.targets})
    nodes = _nodes(members, traced, read, costs, modules, pairs)
    return Captured(
        name=name,
        program=program,
        module=module,
        nodes=nodes,
        node_of=node_of,
        replicated=frozenset(traced) - through,
        costs=costs,
        names={attribute: each.name for attribute, each in parameters.items()},
        transfers=transfers,
        tied=_find_ties(nodes),
        downsets=_downsets(len(nodes), pairs),
        warnings=tuple(_doubts(calls, read, costs, through)),
    )


def _path(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    return str(list(stack.values())[-1][0]) if stack else ""


def _parameters(model: torch.nn.Module, module: torch.fx.GraphModule) -> dict[str, Parameter]:
    """Parameters by the names that the graph has for them; a tied one is the same object for all of them."""
    first = {id(found): name for name, found in model.named_parameters()}
    return {
        name: Parameter(
            first.get(id(found), name),
            float(found.numel() * found.element_size()),
            tuple(found.shape),
            found.requires_grad,
        )
        for name, found in module.named_parameters(remove_duplicate=False)
    }


def _read(calls: list[torch.fx.Node], known: Mapping[str, Parameter]) -> dict[str, tuple[Parameter, ...]]:
    """The parameters that each op reads."""
    return {
        node.name: tuple(
            known[str(each.target)]
            for each in node.all_input_nodes
            if each.op == "get_attr" and str(each.target) in known
        )
        for node in calls
    }


def _transfers(
    calls: list[torch.fx.Node], node_of: Mapping[str, int], costs: Mapping[str, OpCost]
) -> tuple[Transfer, ...]:
    found = []
    for node in calls:
        if node.name not in node_of:
            continue
        own = node_of[node.name]
        targets = sorted({node_of[user.name] for user in node.users if user.name in node_of} - {own})
        if targets:
            cost = costs[node.name]
            found.append(Transfer(node.name, own, tuple(targets), cost.output_bytes, cost.gradient))
    return tuple(found)


def _nodes(
    members: list[list[str]],
    traced: Mapping[str, Traced],
    read: Mapping[str, tuple[Parameter, ...]],
    costs: Mapping[str, OpCost],
    modules: Mapping[str, str],
    pairs: list[tuple[int, int]],
) -> tuple[Node, ...]:
    key = clusters.keys(modules, [op.path for op in traced.values()])
    is_block = clusters.is_block(modules)
    followed, following = {source for source, _ in pairs}, {target for _, target in pairs}
    nodes = []
    for number, ops in enumerate(members):
        path = _common(ops, traced, read, costs, key)
        role = clusters.role_of(
            path,
            modules.get(path, ""),
            modules[""],
            block=is_block(path) and any(other.startswith(f"{path}.") for other in modules),
            first=number not in following,
            last=number not in followed,
            computes=any(costs[op].flops for op in ops),
        )
        parameters = tuple({each.name: each for op in ops for each in read[op]}.values())
        nodes.append(Node(number, path or ops[0], path, role, tuple(ops), parameters))
    return tuple(nodes)


def _common(
    ops: list[str],
    traced: Mapping[str, Traced],
    read: Mapping[str, tuple[Parameter, ...]],
    costs: Mapping[str, OpCost],
    key: Any,
) -> str:
    """The path of a node: of the part of the model with most of its parameters and operations."""
    weight: Counter[str] = Counter()
    for op in ops:
        part = key(traced[op].path) or ""
        weight[part] += 1 + int(1e3 * bool(read[op])) + int(costs[op].flops)
    part = weight.most_common(1)[0][0]
    paths = {traced[op].path for op in ops if (key(traced[op].path) or "") == part}
    return paths.pop() if len(paths) == 1 and part == "" else part


def _find_ties(nodes: tuple[Node, ...]) -> dict[str, tuple[int, ...]]:
    readers: dict[str, list[int]] = {}
    for node in nodes:
        for each in node.parameters:
            readers.setdefault(each.name, []).append(node.id)
    return {name: tuple(found) for name, found in readers.items() if len(found) > 1}


def _downsets(count: int, pairs: list[tuple[int, int]]) -> int | None:
    from instances.graph import downsets

    found = downsets(count, pairs, MOST_DOWNSETS)
    return None if found is None else len(found)


def _doubts(
    calls: list[torch.fx.Node],
    read: Mapping[str, tuple[Parameter, ...]],
    costs: Mapping[str, OpCost],
    through: set[str],
) -> Iterator[str]:
    """Ops that read matrices of parameters, through views too, and count no operations; much that is replicated."""
    views: dict[str, tuple[Parameter, ...]] = {}
    missed: Counter[str] = Counter()
    for node in calls:
        cost = costs[node.name]
        seen = (*read[node.name], *(each for before in node.all_input_nodes for each in views.get(before.name, ())))
        if seen and not cost.moved_bytes:
            views[node.name] = seen
        elif not cost.flops and node.target not in LOOKUPS and any(len(each.shape) > 1 for each in seen):
            kind = str(getattr(node.target, "_schema", node.target)).partition("(")[0].partition("::")[2]
            if not any(word in kind for word in _LOOKING):
                missed[str(node.target)] += 1
    for kind, times in missed.items():
        yield f"{kind} reads matrices of parameters and counts no operations, {times} times: times are too small"
    total = sum(costs[op].flops for op in through)
    again = sum(cost.flops for op, cost in costs.items() if op not in through)
    if again > _MUCH * total:
        yield f"ops that every stage makes for itself are {again / (total or again):.0%} of all operations"

"""An exported model in stages: the graph of each node of a stage, and the tensors that stages exchange."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from instances.rules import NodeId
from planner.process.errors import UsageError
from planner.process.target import words
from planner.training.runtime.layout import Layout
from planner.training.runtime.program import Program, node_order, settle
from planner.training.runtime.splits import Split


@dataclass(frozen=True)
class Block:
    """Operations that run together: those of a node, or what a stage computes without parameters.

    ``module(*inputs)`` returns a tuple of the ``outputs``; both are names of values in the whole graph. ``dropped`` are
    values that no later block of the stage needs. ``split`` is how several processes share it, if they do.
    """

    module: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    recomputed: bool
    dropped: tuple[str, ...] = ()
    split: Split | None = None

    def reduced_bytes(self) -> float:
        """Bytes that each process that shares it sends to sum results and gradients of a sample."""
        if self.split is None:
            return 0.0
        return self.split.forward_bytes * (1 + self.recomputed) + self.split.backward_bytes


@dataclass(frozen=True)
class Tensor:
    """A tensor that goes from a stage that has it to others; its gradient comes back if it has one.

    In the stages ``shared`` each process of a replica has its part of dimension ``dim``, in others the whole.
    """

    name: str
    source: int
    targets: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: Any
    has_gradient: bool
    num_bytes: int
    dim: int = 0
    shared: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Stages:
    """A model in stages.

    ``blocks``: for each stage its blocks, in the order in which they run.
    ``tensors``: what stages exchange, in the order of the graph.
    ``results``: for each stage the outputs of the model that it makes and that have a gradient: (number of the output,
    name).
    ``inputs``: names of the graph's inputs, in the order of `Program.leaves`.
    ``parameters``: for each stage the parameters that it uses, by a name that tied ones share.
    """

    blocks: tuple[tuple[Block, ...], ...]
    tensors: tuple[Tensor, ...]
    results: tuple[tuple[tuple[int, str], ...], ...]
    inputs: tuple[str, ...]
    parameters: tuple[Mapping[str, Any], ...]


def split(program: Program, made: Layout) -> Stages:
    """Cut the graph of a program along the stages of a layout.

    `UsageError` if the graph is not the one of the instance, or what crosses between stages is no tensor.
    """
    stage_of, recomputed = made.stage_of, made.recomputed
    graph_module = program.graph_module
    places = settle(graph_module, program.node_of)
    values = _values(program)
    count = max(stage_of.values()) + 1
    stages = {each: stage_of[node] for each, node in places.items()}
    targets = _targets(stages)
    for each, takers in targets.items():
        for taker in takers:
            if (stages[each], taker) not in made.edges and not made.is_relayed:
                what = f"{each.name}, from stage {stages[each]} to stage {taker}, which no edge of the instance joins"
                raise UsageError.at("--model", what, "the model that the instance was made of")
    results = _results(graph_module, stages, values, count)
    order = node_order(places)
    tensors = [
        _tensor(each, source, to, values)
        for each, takers in targets.items()
        for source, to in _ways(stages[each], takers, made.is_relayed)
    ]
    blocks = []
    for stage in range(count):
        sent = {each.name for each in tensors if each.source == stage} | {name for _, name in results[stage]}
        wanted = [node for node in order if stage_of[node] == stage]
        blocks.append(_blocks(program, places, wanted, sent, recomputed, made.keeps_inputs))
    return Stages(
        tuple(blocks),
        tuple(_with_shares(each, blocks) for each in tensors),
        tuple(map(tuple, results)),
        tuple(node.name for node in graph_module.graph.nodes if node.op == "placeholder"),
        tuple(_parameters(program.model, each) for each in blocks),
    )


def _values(program: Program) -> dict[str, Any]:
    """What every operation gives for the first sample: shapes, types, and whether there is a gradient."""
    from torch import fx

    class Recorder(fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            value = super().run_node(node)
            found[node.name] = value
            return value

    found: dict[str, Any] = {}
    try:
        Recorder(program.graph_module).run(*program.leaves(0), enable_io_processing=False)
    except Exception as error:  # whatever the model does with its data
        raise UsageError.at("--model", words(error), "a model that runs with its inputs") from error
    return found


def _targets(stages: Mapping[Any, int]) -> dict[Any, tuple[int, ...]]:
    """The stages that take a value from another stage, by the operation that makes it."""
    found = {}
    for each, stage in stages.items():
        takers = {stages[user] for user in each.users if user in stages} - {stage}
        if takers:
            found[each] = tuple(sorted(takers))
    return found


def _ways(source: int, takers: tuple[int, ...], is_relayed: bool) -> list[tuple[int, tuple[int, ...]]]:
    """The stages that send a tensor, and to which: the one that makes it, or all up to the last one that takes it."""
    return [(stage, (stage + 1,)) for stage in range(source, takers[-1])] if is_relayed else [(source, takers)]


def _tensor(each: Any, stage: int, takers: tuple[int, ...], values: Mapping[str, Any]) -> Tensor:
    import torch

    value = values[each.name]
    if not isinstance(value, torch.Tensor):
        rule = "tensors between stages"
        raise UsageError.at(
            "PLAN", f"a {type(value).__name__}, {each.name}, between stages {stage} and {takers[0]}", rule
        )
    size = value.numel() * value.element_size()
    return Tensor(each.name, stage, takers, tuple(value.shape), value.dtype, value.requires_grad, size)


def _with_shares(tensor: Tensor, blocks: Sequence[tuple[Block, ...]]) -> Tensor:
    """The tensor with the stages in which sequences of it are shared by all blocks that make or take it."""
    shared, dim = set(), 0
    for stage in (tensor.source, *tensor.targets):
        using = [block for block in blocks[stage] if tensor.name in (*block.inputs, *block.outputs)]
        found = [block.split.sequences.dims if block.split and block.split.sequences else {} for block in using]
        if found and all(tensor.name in dims for dims in found):
            shared.add(stage)
            dim = found[0][tensor.name]
    return replace(tensor, dim=dim, shared=frozenset(shared))


def _results(
    graph_module: Any, stages: Mapping[Any, int], values: Mapping[str, Any], count: int
) -> list[list[tuple[int, str]]]:
    import torch

    found: list[list[tuple[int, str]]] = [[] for _ in range(count)]
    last = next(node for node in graph_module.graph.nodes if node.op == "output")
    for number, each in enumerate(last.args[0]):
        value = values.get(getattr(each, "name", ""))
        if each in stages and isinstance(value, torch.Tensor) and value.requires_grad:
            found[stages[each]].append((number, each.name))
    if not any(found):
        raise UsageError.at("--model", "no output with a gradient", "a model that can be trained")
    return found


def _blocks(
    program: Program,
    places: Mapping[Any, NodeId],
    nodes: Sequence[NodeId],
    sent: set[str],
    recomputed: frozenset[NodeId],
    keeps_inputs: bool = False,
) -> tuple[Block, ...]:
    """The blocks of a stage: what needs no parameter, then its nodes in order; or (``keeps_inputs``) all as one."""
    graph_module = program.graph_module
    ranks = {each: place for place, each in enumerate(graph_module.graph.nodes)}
    operations: dict[NodeId, list[Any]] = {node: [] for node in nodes}
    for each, node in places.items():
        if node in operations:
            operations[node].append(each)
    if keeps_inputs and recomputed.issuperset(nodes):
        operations = {nodes[0]: [each for part in operations.values() for each in part]}
    kept = [each for node, part in operations.items() if node not in recomputed for each in part]
    free = sorted(_without_parameters(kept, places), key=ranks.__getitem__)
    parts: list[tuple[list[Any], bool, Split | None]] = [(free, False, None)] if free else []
    for node, part in operations.items():
        shared = program.splits.get(node)
        if node in recomputed:  # what it needs without parameters is made again, too
            parts.append((sorted([*_without_parameters(part, places), *part], key=ranks.__getitem__), True, shared))
        elif part:
            parts.append((part, False, shared))
    blocks: list[Block] = []
    needed = set(sent)
    for part, again, shared in reversed(parts):
        outputs = tuple(each.name for each in part if each.name in needed)
        block = _block(graph_module, part, outputs, again)
        dropped = tuple(name for name in block.inputs if name not in needed)
        needed |= set(block.inputs)
        blocks.append(replace(block, dropped=dropped, split=shared))
    return tuple(reversed(blocks))


def _without_parameters(operations: Iterable[Any], places: Mapping[Any, NodeId]) -> set[Any]:
    """What these operations need that depends on no parameter: each stage has a copy of its own."""
    found: set[Any] = set()
    left = list(operations)
    while left:
        for each in left.pop().all_input_nodes:
            if each.op == "call_function" and each not in places and each not in found:
                found.add(each)
                left.append(each)
    return found


def _block(graph_module: Any, operations: Sequence[Any], outputs: tuple[str, ...], recomputed: bool) -> Block:
    """A module of its own of some operations, in their order; parameters are shared with the whole."""
    from torch import fx

    graph = fx.Graph()
    inside = set(operations)
    outside = dict.fromkeys(
        each for operation in operations for each in operation.all_input_nodes if each not in inside
    )
    copies: dict[Any, Any] = {}
    taken = [each for each in outside if each.op != "get_attr"]
    for each in taken:
        copies[each] = graph.placeholder(each.name)
    for each in outside:
        if each.op == "get_attr":
            copies[each] = graph.get_attr(each.target)
    for each in operations:
        copies[each] = graph.node_copy(each, copies.__getitem__)
    named = {each.name: each for each in operations}
    graph.output(tuple(copies[named[name]] for name in outputs))
    module = fx.GraphModule(graph_module, graph)
    return Block(module, tuple(each.name for each in taken), outputs, recomputed)


def _parameters(model: Any, blocks: Iterable[Block]) -> dict[str, Any]:
    """The parameters that blocks use, by the first name that the model has for each."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, Any] = {}
    for block in blocks:
        for parameter in block.module.parameters():
            found[names[id(parameter)]] = parameter
    return found

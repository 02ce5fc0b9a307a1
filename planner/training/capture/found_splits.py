"""How a captured layer can be split among t devices, operator by operator, and the splits that are worth it.

Times and bytes are those of `configurations`. A product with a matrix of parameters is computed whole, by columns, by
rows, or for shares of its samples or positions; so is a product of activations; a table is looked up by rows or
columns. Ops by element, views and norms are computed whole or for shares of a dimension that they leave apart; what is
linear takes terms of a sum as well. Other ops are computed whole by every device. Parameters that devices have whole
though they compute shares have their gradients summed once in a batch. What the backward pass needs is kept as it was
made: in shares, then, and gathered once more for those that took it whole.

Times are rounded up to picoseconds, sizes to bytes.

Source: this project; what is exchanged is in `planner.training.capture.layer_splits`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from instances.generators.hardware import Hardware
from instances.generators.transformer import RECOMPUTE
from instances.problems.stage_partitioning import Tmpc
from planner.training.capture.captured import Captured, Node
from planner.training.capture.choices import Choices, Work, by_node
from planner.training.capture.configurations import Configurations
from planner.training.capture.dims import follow_split
from planner.training.capture.layer_splits import (
    PARTIAL,
    WHOLE,
    Amounts,
    Layout,
    Operator,
    Split,
    SplitLayer,
    Way,
    along_chain,
    fastest,
    pareto,
)
from planner.training.capture.ops import LOOKUPS, PICKS, PRODUCTS, aten, is_attention
from planner.training.capture.sharding import Walk, sharding

#: Picoseconds in a second.
PS = 1e12
#: Of the activations or of the other bytes a way has to save so much against each faster one: lists stay short.
SAVING = 0.05
_WHOLE, _COLUMNS, _SUM = Layout(WHOLE, WHOLE), Layout(WHOLE, PARTIAL), Layout(PARTIAL, WHOLE)
#: Ops that hand on or copy, and where `follow_split` knows what becomes of a dimension.
_VIEWS = frozenset(
    {
        *(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints),
        *(aten.unflatten.int, aten.transpose.int, aten.t.default, aten.numpy_T.default, aten.permute.default),
        *(aten.unsqueeze.default, aten.select.int, aten.unbind.int, aten.cat.default, aten.slice.Tensor),
        *(aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.expand.default),
        *(aten.contiguous.default, aten.clone.default, aten.to.dtype, aten.dropout.default, *PICKS),
    }
)
#: Of these, and of ops by element, the linear ones: terms of a sum stay terms of a sum.
_LINEAR = _VIEWS | {aten.neg.default}
_SUMS = frozenset({aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor})
#: Norms, and the place of the dimensions that they need whole: a list of dimensions, or the sizes of the last ones.
_BY_DIMS = {aten.mean.dim: 1, aten.var.correction: 1, aten.softmax.int: 1, aten._softmax.default: 1}
_BY_SIZES = {aten.layer_norm.default: 1, aten.rms_norm.default: 1}


class FoundConfigurations(Configurations):
    """The TMPCs of `Configurations`, and those found: ``split 1`` is the fastest of the splits declared."""

    def __init__(self, captured: Captured, hardware: Hardware, work: Work, choices: Choices) -> None:
        super().__init__(captured, hardware, work, choices)
        self._known: dict[SplitLayer, tuple[Way, ...]] = {}  # equal layers have equal ways
        self._fastest: dict[tuple[SplitLayer, Amounts | None], Way | None] = {}

    def of(self, node: Node) -> dict[int, tuple[Tmpc, ...]]:
        """All TMPCs of a node, by degree."""
        return {t: (*tmpcs, *(self._found(node, t) if t > 1 else ())) for t, tmpcs in super().of(node).items()}

    def by_hand(self, node: Node, t: int) -> Way | None:
        """The split by columns and rows as one of the declared; ``None``: none of them takes the time it has by hand.

        Its choice counts the splits that the rule leaves of each op.
        """
        splits = LayerSplits(self, node, t, again=False)
        layer = splits.by_hand(splits.layer())
        way = None if layer is None else self.fastest(layer)
        if layer is None or way is None:
            return None
        hand = super().of(node)[t][0].time
        return way if math.isclose(way.amounts.time / PS, hand, abs_tol=3 * len(layer.operators) / PS) else None

    def fastest(self, layer: SplitLayer, within: Amounts | None = None) -> Way | None:
        """As `layer_splits.fastest`, once for equal layers."""
        if (layer, within) not in self._fastest:
            self._fastest[layer, within] = fastest(layer, within)
        return self._fastest[layer, within]

    def notes(self) -> Iterator[str]:
        """For each degree what columns and rows lose at their own bytes, and what whole tensors between layers cost.

        Nodes are named where columns and rows are none of the splits declared.
        """
        for t in self.choices.degrees:
            if t == 1:
                continue
            lacking, losses = [], []
            for node in self.captured.nodes:
                hand = self.by_hand(node, t)
                best = hand and self.fastest(LayerSplits(self, node, t, again=False).layer(), hand.amounts)
                if hand is None or best is None:
                    lacking.append(node.name)
                elif best.amounts.time:
                    losses.append((node.name, hand.amounts.time / best.amounts.time - 1))
            if losses:
                yield f"at degree {t} they take longer than the fastest with no more bytes, by {by_node(losses)}"
            if lacking:
                yield f"at degree {t} columns and rows are none of the splits searched: {', '.join(lacking)}"
            for chain in self.chains():
                whole, best_s = self.along(chain, t)
                where = f"at degree {t} {chain[0].name} to {chain[-1].name} take {whole / best_s - 1:z.1%} longer"
                yield f"{where} with whole tensors between layers, as plans have them, than with the best layouts there"

    def chains(self) -> list[list[Node]]:
        """Nodes one after the other, each of which hands one tensor on, with a gradient, to the next one alone."""
        nodes, transfers = self.captured.nodes, self.captured.transfers
        leaving = {node.id: [each for each in transfers if each.source == node.id] for node in nodes}
        entering = {node.id: [each for each in transfers if node.id in each.targets] for node in nodes}
        found: list[list[Node]] = []
        for node in nodes:
            own = entering[node.id]
            last = own[0].source if own else -1
            joins = len(own) == 1 == len(leaving[last]) and own[0].targets == (node.id,) and own[0].gradient
            if joins and found and found[-1][-1].id == last:
                found[-1].append(node)
            else:
                found.append([node])
        return [each for each in found if len(each) > 1]

    def along(self, nodes: Sequence[Node], t: int) -> tuple[float, float]:
        """Seconds of the fastest splits of nodes of a chain: borders whole, and in the layouts that are best there."""
        layers = [LayerSplits(self, node, t, again=False) for node in nodes]
        last = len(nodes) - 1
        times = (
            along_chain(
                [each.layer(begins=is_open and i > 0, ends=is_open and i < last) for i, each in enumerate(layers)]
            )
            for is_open in (False, True)
        )
        whole, best = (chain.time / PS for chain in times)
        return whole, best

    def _found(self, node: Node, t: int) -> Iterator[Tmpc]:
        """Without those that one with or without recomputation is better than."""
        spread, ways = self.spread(node), []
        for again in (False, True)[: 1 + self.choices.recompute]:
            splits = LayerSplits(self, node, t, again=again)
            layer = splits.layer()
            if layer not in self._known:
                self._known[layer] = pareto(layer, SAVING)
            for number, way in enumerate(self._known[layer], 1):
                name = f"split {number}, {RECOMPUTE}" if again else f"split {number}"
                ways.append((way.amounts, splits.trained_bytes(layer, way), name))
        for amounts, trained, name in ways:
            others = (other for other, _, _ in ways if other != amounts)
            if not any(all(one <= two for one, two in zip(other, amounts, strict=True)) for other in others):
                yield Tmpc(name, amounts.time / PS, trained, amounts.activation_bytes, amounts.static_bytes, *spread)


class LayerSplits:
    """The operators of a node on t devices; with ``again``, its forward pass is computed again before the backward one.

    Tensors enter and leave whole.
    """

    def __init__(self, offered: Configurations, node: Node, degree: int, *, again: bool) -> None:
        self.offered, self.node, self.t, self.again = offered, node, degree, again
        self.captured, self.graph = offered.captured, offered.graph
        self.costs = self.captured.costs
        self.walk = Walk(self.captured, node)
        self.sizes = {each.name: each for each in node.parameters}
        self.tables = offered.tables(node)
        self.ops = [op for op in node.ops if not self.walk.reads(self.graph[op])]  # others are views of parameters
        self.entering = [each.op for each in self.captured.transfers if node.id in each.targets]
        self.flow = [*self.entering, *self.ops]
        self.reader = {name: op for op in reversed(self.ops) for name in self._read(self.graph[op])}
        self.trained: dict[tuple[str, Split], float] = {}
        self.place = {op: number for number, op in enumerate(self.flow)}

    def layer(self, *, begins: bool = False, ends: bool = False) -> SplitLayer:
        """The node as operators; what leaves it is taken by a last one.

        Where it ``begins`` or ``ends`` in any layout, its one tensor there has a split for each.
        """
        operators = [self._border(op, (), self._layouts(op) if begins else [_WHOLE]) for op in self.entering]
        operators += [self._operator(self.graph[op]) for op in self.ops]
        leaving = {self.place[each.op]: each.op for each in self.captured.transfers if each.source == self.node.id}
        operators += [
            self._border("", (place,), self._layouts(op) if ends else [_WHOLE]) for place, op in sorted(leaving.items())
        ]
        room = self.offered.reserve - self.offered.working[self.node.id] / self.t
        return SplitLayer(self.t, tuple(operators), math.floor(room))

    def trained_bytes(self, layer: SplitLayer, way: Way) -> float:
        """Bytes of the trained parameters that a device holds with a split of each operator."""
        chosen = zip(self.flow, layer.operators, way.choice, strict=False)
        return sum(self.trained.get((op, operator.splits[each]), 0.0) for op, operator, each in chosen)

    def by_hand(self, layer: SplitLayer) -> SplitLayer | None:
        """The layer with the splits alone that the rule of columns and rows has for each op; ``None``: it lacks one."""
        rule = sharding(self.captured, self.node)
        is_used = rule is not None and rule.allows(self.t)
        split, shared = (rule.split, rule.shared | rule.parameters) if rule is not None and is_used else (set(), set())
        operators = list(layer.operators)
        for place in range(len(self.entering), len(self.flow)):
            name = self.flow[place]
            wanted = [each for each in operators[place].splits if each.gives.forward >= 0]
            if name not in split:
                by_rows = name in shared or not shared.isdisjoint(self._read(self.graph[name]))
                wanted = [each for each in operators[place].splits if each.name == ("rows" if by_rows else "whole")]
            elif any(each.name == "columns" for each in wanted):
                wanted = [each for each in wanted if each.name == "columns"]
            if not wanted:
                return None
            operators[place] = replace(operators[place], splits=tuple(wanted))
        return replace(layer, operators=tuple(operators))

    def _layouts(self, op: str) -> list[Layout]:
        """Those that a tensor may have between two layers."""
        shape = self.costs[op].shapes[0]
        return [_WHOLE, _COLUMNS, _SUM, *(Layout(dim, dim) for dim, size in enumerate(shape) if size % self.t == 0)]

    def _border(self, op: str, inputs: tuple[int, ...], layouts: list[Layout]) -> Operator:
        """A tensor that comes or goes: as many bytes are kept where a layer is computed again from its inputs."""
        splits = []
        for each in layouts:
            kept = 0
            if op:
                parts = self.t if each.forward >= 0 else 1
                kept = math.ceil(self.costs[op].output_bytes / parts) if self.again else self._kept(op, each)
            splits.append(Split("border", (each,) * len(inputs), each, Amounts(0, kept, 0)))
        return Operator(inputs, tuple(splits), *(self._steps(op) if op else (0, 0, 0)))

    def _steps(self, op: str) -> tuple[int, int, int]:
        cost = self.costs[op]
        step = math.ceil(cost.output_bytes * (self.t - 1) / self.t**2 / self.offered.link_rate * PS)
        is_kept = any(self.costs[other].saved[op] for other in self.ops)
        return step * (2 if self.again else 1), step if cost.gradient else 0, step if is_kept else 0

    def _operator(self, op: Any) -> Operator:
        takes = [each for each in op.all_input_nodes if each.name in self.place]
        splits = list(dict.fromkeys(self._splits(op, takes)))
        return Operator(tuple(self.place[each.name] for each in takes), tuple(splits), *self._steps(op.name))

    def _splits(self, op: Any, takes: list[Any]) -> Iterator[Split]:
        """Ways to compute an op: for each a layout of every input, of the result, and what of its work a device has."""
        yield self._split(op, "whole", [_WHOLE] * len(takes), _WHOLE, 1.0)
        matrix = PRODUCTS.get(op.target)
        if matrix is not None and self.walk.reads(op.args[matrix]):
            yield from self._by_matrix(op, takes, op.args[matrix - 1], matrix)
            return
        if op.target in LOOKUPS:
            yield from self._lookups(op, takes)
            return
        shape = self.walk.shape(op)
        for dim, size in enumerate(shape):
            taken = self._taken_for(op, takes, dim) if size % self.t == 0 else None
            if taken is not None:
                own = {name for name in self._read(op) if self._lies_along(self.sizes[name].shape, shape, dim)}
                yield self._split(op, f"dimension {dim}", taken, Layout(dim, dim), 1 / self.t, own)
        yield from self._terms(op, takes)

    def _terms(self, op: Any, takes: list[Any]) -> Iterator[Split]:
        """Ways to compute terms of a sum: of a product or mean along what is in shares, or of such terms."""
        if op.target in (aten.matmul.default, aten.bmm.default) and len(takes) == 2:
            last = len(self.walk.shape(takes[0])) - 1
            if self.walk.shape(takes[0])[last] % self.t == 0:
                inner = [Layout(last, last), Layout(last - 1, last - 1)]
                yield self._split(op, "terms", inner, _SUM, 1 / self.t)
        if op.target is aten.mean.dim and takes and len(op.args[1]) == 1:
            dim = int(op.args[1][0]) % len(self.walk.shape(takes[0]))
            if self.walk.shape(takes[0])[dim] % self.t == 0:
                yield self._split(op, "terms", [Layout(dim, dim)], _SUM, 1 / self.t)
        linear = op.target in _LINEAR or (op.target in _SUMS and len(takes) == 2)
        if linear and takes:
            yield self._split(op, "terms", [_SUM] * len(takes), _SUM, 1.0)
        if op.target in _LINEAR and len(takes) == 1:
            yield self._split(op, "terms of gradients", [_COLUMNS], _COLUMNS, 1.0)

    def _by_matrix(self, op: Any, takes: list[Any], left: Any, matrix: int) -> Iterator[Split]:
        """Columns, rows, samples and positions of a product with parameters; a router is left whole."""
        if takes not in ([left], []):  # none: what the model is given, whole on each device
            return
        shape = self.walk.shape(left) if left.op == "call_function" else tuple(left.meta["val"].shape)
        last = len(shape) - 1
        out = self.walk.shape(op)[-1]
        matrices = set(self.walk.reads(op.args[matrix]))
        if out % self.t == 0 and not self.walk.chooses(op):
            yield self._split(
                op, "columns", [_COLUMNS] * len(takes), Layout(last, last), 1 / self.t, set(self._read(op))
            )
        if shape[last] % self.t == 0:
            yield self._split(op, "rows", [Layout(last, last)] * len(takes), _SUM, 1 / self.t, matrices)
        for dim in range(last):
            if shape[dim] % self.t == 0:
                layout = Layout(dim, dim)
                yield self._split(op, f"dimension {dim}", [layout] * len(takes), layout, 1 / self.t)

    def _lookups(self, op: Any, takes: list[Any]) -> Iterator[Split]:
        names = self.walk.reads(op.args[0])
        if not names or takes:
            return
        rows, width = self.sizes[names[0]].shape
        last = len(self.walk.shape(op)) - 1
        if rows % self.t == 0:
            yield self._split(op, "rows", [], _SUM, 1.0, set(names))
        if width % self.t == 0:
            yield self._split(op, "columns", [], Layout(last, last), 1 / self.t, set(names))
        for dim in range(last):
            if self.walk.shape(op)[dim] % self.t == 0:
                yield self._split(op, f"dimension {dim}", [], Layout(dim, dim), 1 / self.t)

    def _taken_for(self, op: Any, takes: list[Any], dim: int) -> list[Layout] | None:
        """How an op takes its inputs for shares of a dimension of its result; ``None``: it has no shares of it."""
        shape = self.walk.shape(op)
        if not takes or not self._leaves_apart(op, dim):
            return None
        found = []
        for each in takes:
            before = self.walk.shape(each)
            own = [
                i for i, size in enumerate(before) if size % self.t == 0 and follow_split(op, before, shape, i) == dim
            ]
            if len(own) == 1:
                found.append(Layout(own[0], own[0]))
            elif not own and self._is_spread(before, shape, dim) and (_by_element(op) or is_attention(op)):
                found.append(_COLUMNS)
            else:
                return None
        return found if any(each.forward >= 0 for each in found) else None

    def _leaves_apart(self, op: Any, dim: int) -> bool:
        """Whether places along a dimension of the result are computed one by one."""
        target, rank = op.target, len(self.walk.shape(op.all_input_nodes[0])) if op.all_input_nodes else 0
        if target is aten.slice.Tensor:
            return dim != int(op.args[1] if len(op.args) > 1 else 0) % rank
        if target in _VIEWS:
            return True
        if target in _BY_DIMS:
            if len(self.walk.shape(op)) != rank:
                return False
            given = op.args[_BY_DIMS[target]]
            return dim not in {int(each) % rank for each in (given if isinstance(given, (list, tuple)) else [given])}
        if target in _BY_SIZES:
            return dim < rank - len(op.args[_BY_SIZES[target]])
        return dim < len(self.walk.shape(op)) - 2 if is_attention(op) else _by_element(op)

    def _is_spread(self, before: tuple[int, ...], shape: tuple[int, ...], dim: int) -> bool:
        """Whether every place along a dimension of the result takes the same of an input."""
        own = dim - len(shape) + len(before)
        return own < 0 or before[own] == 1

    def _lies_along(self, before: tuple[int, ...], shape: tuple[int, ...], dim: int) -> bool:
        own = dim - len(shape) + len(before)
        return own >= 0 and before[own] == shape[dim]

    def _split(
        self,
        op: Any,
        name: str,
        layouts: list[Layout],
        gives: Layout,
        part: float,
        shared: set[str] | frozenset[str] = frozenset(),
    ) -> Split:
        """What a device has of an op, of whose work it does ``part``, with a share of the parameters ``shared``."""
        offered = self.offered
        seconds = offered.seconds(op.name, part)
        held = {each.name: each.size / (self.t if each.name in shared else 1) for each in self._first_read(op)}
        trained = {name: size for name, size in held.items() if self.sizes[name].trained}
        back = offered.times_back(op.name) * seconds
        back += 2 * sum(trained[each] for each in self.tables & set(trained)) / offered.memory_rate
        if gives.forward >= 0:  # these parameters have gradients of a part of the samples, positions or columns
            summed = sum(size for name, size in trained.items() if name not in shared)
            back += 2 * (self.t - 1) / self.t * summed / offered.link_rate / offered.work.num_microbatches
        kept = self._kept(op.name, gives)
        amounts_trained = sum(trained.values())
        states = offered.states(sum(held.values()), sum(trained.values()))
        time = math.ceil((seconds * (2 if self.again else 1) + back) * PS)
        amounts = Amounts(time, 0 if self.again else kept, math.ceil(states))
        found = Split(name, tuple(layouts), gives, amounts, kept if self.again else 0)
        self.trained[op.name, found] = amounts_trained
        return found

    def _kept(self, op: str, gives: Layout) -> int:
        """Bytes that the node keeps of what an op makes, or of what comes in; and of masks and tables of its own."""
        made = sum(self.costs[other].saved[op] for other in self.ops)
        own = {} if op in self.entering else self.costs[op].saved
        others = sum(size for maker, size in own.items() if maker not in self.place)
        return math.ceil(made / (self.t if gives.forward >= 0 else 1) + others)

    def _first_read(self, op: Any) -> Iterator[Any]:
        """The parameters that an op reads and no earlier op of the node did."""
        return (self.sizes[name] for name in dict.fromkeys(self._read(op)) if self.reader[name] == op.name)

    def _read(self, op: Any) -> list[str]:
        return [name for each in op.all_input_nodes for name in self.walk.reads(each)]


def _by_element(op: Any) -> bool:
    return torch.Tag.pointwise in getattr(op.target, "tags", ())

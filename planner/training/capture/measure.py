"""What the ops of an exported graph cost, by running it on tensors without data.

Source: reconstructed; operations are those that PyTorch's FlopCounterMode counts, and those of grouped products.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from planner.training.capture.captured import OpCost
from planner.training.capture.ops import ATTENTION, LOOKUPS, aten, is_in_place


def measure_ops(module: torch.fx.GraphModule, inputs: Mapping[str, Any]) -> dict[str, OpCost]:
    """The costs of every ``call_function`` node of a graph module, by name.

    ``module``: as ``ExportedProgram.module()`` gives it: parameters are attributes.
    ``inputs``: the values of its placeholders by name; tensors may be on any device, their data is not read.
    Source: Reconstructed. An attention op keeps its queries, keys, values and output, as fused kernels do, whatever the
    device at hand would keep, and a mask that it is given as numbers of the queries' type.
    """
    mode = FakeTensorMode()
    fake = {name: _fake(value, mode) for name, value in inputs.items()}
    run = _Run(module, mode)
    counter = FlopCounterMode(
        display=False, custom_mapping={aten._grouped_mm: _count_grouped, aten._scaled_grouped_mm: _count_grouped}
    )
    run.counter = counter
    with mode, counter, torch.autograd.graph.saved_tensors_hooks(run.keep, lambda kept: kept), torch.enable_grad():
        run.run(*[fake[str(node.name)] for node in module.graph.nodes if node.op == "placeholder"])
    return run.costs


def _fake(value: Any, mode: FakeTensorMode) -> Any:
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


class _Run(torch.fx.Interpreter):
    """One forward pass that notes what every op does. Storages stay alive, so that no address comes twice."""

    counter: FlopCounterMode

    def __init__(self, module: torch.fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.mode = mode
        self.costs: dict[str, OpCost] = {}
        self.faked: dict[int, Any] = {}
        self.maker: dict[int, str] = {}
        self.known: set[int] = set()
        self.kept: set[int] = set()
        self.alive: list[Any] = []
        self.now, self.inside = "", 0

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note a tensor that autograd saves, parameters, buffers and inputs apart."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known or not self.now:
            return tensor
        cost = self.costs[self.now]
        if key not in self.kept:
            self.kept.add(key)
            self.alive.append(storage)
            cost.saved[self.maker.get(key, self.now)] += storage.nbytes()
        cost.keeps[key] = storage.nbytes()
        return tensor

    def _keep_inside(self, size: int) -> None:
        """Note what the op at hand makes inside and saves."""
        self.inside -= 1
        cost = self.costs[self.now]
        cost.saved[self.now] += size
        cost.keeps[self.inside] = size

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Parameters and buffers without data, the same one for every name of a tied parameter."""
        value = super().get_attr(target, args, kwargs)
        if not isinstance(value, torch.Tensor):
            return value
        found = self.faked.get(id(value))
        if found is None:
            found = self.faked[id(value)] = self.mode.from_tensor(value)
            self._keep_input(found)
        return found

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An input, which every stage has."""
        value = super().placeholder(target, args, kwargs)
        for tensor in _tensors(value):
            self._keep_input(tensor)
        return value

    def _keep_input(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.alive.append(storage)
        self.known.add(storage._cdata)
        self.maker[storage._cdata] = ""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Views of what was traced with another layout are copies; masks of dropout are of one byte, as on GPUs."""
        if target is aten.dropout.default:
            source, probability, training = args
            return aten.native_dropout.default(source, probability, True)[0] if training and probability else source
        return super().call_function(aten.reshape.default if target is aten.view.default else target, args, kwargs)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node and note its costs."""
        if n.op != "call_function":
            return super().run_node(n)
        cost = self.costs[n.name] = OpCost()
        self.now = n.name
        before = _total(self.counter)
        if n.target in ATTENTION:
            result = self._attention(n, cost)
        else:
            result = super().run_node(n)
            cost.flops = _total(self.counter) - before
        self.now = ""
        outputs = list(_tensors(result))
        made = self._makes_storage(n.name, outputs)
        if made or is_in_place(n.target):
            reads = [self.env[source] for source in n.all_input_nodes]
            taken = sum(_size(each) for value in reads for each in _tensors(value))
            written = sum(map(_size, outputs))
            cost.moved_bytes = (written if n.target in LOOKUPS else taken) + written  # of a table the rows alone
        cost.output_bytes = sum(map(_size, outputs))
        storages = [each.untyped_storage() for each in outputs]
        cost.outputs = {each._cdata: float(each.nbytes()) for each in storages if each._cdata not in self.known}
        cost.gradient = any(each.requires_grad for each in outputs)
        cost.shapes = tuple(tuple(each.shape) for each in outputs)
        return result

    def _makes_storage(self, name: str, outputs: list[torch.Tensor]) -> bool:
        """Whether the op makes a storage rather than a view."""
        new = False
        for each in outputs:
            storage = each.untyped_storage()
            if storage._cdata not in self.maker:
                self.maker[storage._cdata] = name
                self.alive.append(storage)
                new = True
        return new

    def _attention(self, n: torch.fx.Node, cost: OpCost) -> torch.Tensor:
        """Fused attention: products of b h s t (d + d') multiplications; queries, keys, values and output are kept."""
        query, key, value = (self.env[each] for each in n.args[:3])
        *heads, length, width = query.shape
        cost.flops = 2.0 * math.prod(heads) * length * key.shape[-2] * (width + value.shape[-1])
        wanted = any(each.requires_grad for each in (query, key, value))
        # Fused kernels leave the heads of a position side by side, so that joining them copies nothing.
        *outer, inner = heads
        result: torch.Tensor = query.detach().new_empty((*outer, length, inner, value.shape[-1])).transpose(-3, -2)
        result.requires_grad_(wanted)
        if wanted:
            for each in (query, key, value, result):
                self.keep(each)
            self._keep_inside(4 * math.prod(heads) * length)  # logarithms of the sums of exponentials, float32
            mask = self.env.get(n.args[3] if len(n.args) > 3 else n.kwargs.get("attn_mask"))
            if mask is not None and mask.dtype == torch.bool:  # kernels add to products: 0, or minus infinity
                self._keep_inside(mask.numel() * query.element_size())
            elif mask is not None:
                self.keep(mask)
        return result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)


def _size(tensor: torch.Tensor) -> float:
    return float(tensor.numel() * tensor.element_size())


def _total(counter: FlopCounterMode) -> float:
    return float(sum(counter.flop_counts["Global"].values()))


def _count_grouped(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """Operations of a grouped matrix product: every row (or column) belongs to one group.

    Shapes: (T, K) x (G, K, N), (G, M, K) x (K, T), (M, T) x (T, N) with one product for each group, or (G, M, K) x
    (G, K, N).
    """
    rows = math.prod(a) if len(a) == 2 or len(b) == 3 else a[-2] * a[-1]
    return int(2 * rows * b[-1])

"""A block that the processes of a tensor-parallel stage share, run with torch.distributed.tensor (DTensor).

What comes in and goes out is whole on every process. A product by columns takes its operand as a replicated DTensor,
the gradient of which is summed when it leaves; a product by rows gives a partial DTensor, which is summed at once.
Between the two, DTensor carries shares through the ops of the graph. ``parallelize_module`` cuts modules; a block of an
exported graph has none, so its parameters are cut here.

With sequence parallelism each process has its part of the tokens of what lies outside of these products: DTensors
carry it through norms and sums. Operands of products by columns are gathered, and for the gradients of weights once
more, sums of products by rows are scattered. The gradient of a weight that all have whole is summed at the end.

Source: Megatron-LM (columns, then rows), Korthikanti et al. 2022, section 4.2.2 (sequences); torch.distributed.tensor
of PyTorch 2.13, public.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from planner.training.capture.ops import ATTENTION
from planner.training.capture.sharding import ring
from planner.training.runtime.halves import Wanted
from planner.training.runtime.program import attribute
from planner.training.runtime.splits import Column, Cut, Split, slice_of

aten: Any = torch.ops.aten
_PRODUCTS = (aten.matmul.default, aten.bmm.default)


class Sharded(torch.nn.Module):  # type: ignore[misc]
    """A process's share of a block: ``forward`` takes and gives what the block's module does.

    ``inner``: the block's module, with whole parameters.
    ``mesh``: the processes that share it, one dimension.
    """

    def __init__(self, inner: Any, split: Split, mesh: DeviceMesh) -> None:
        super().__init__()
        self.inner, self.split, self.mesh = inner, split, mesh
        self.shares = {path: _share(attribute(inner, path), cut, mesh) for path, cut in split.cuts.items()}
        #: With sequence parallelism: parameters that all processes have whole, each with a part of their gradients.
        self.wholes: dict[str, Any] = {}
        if split.sequences is not None:
            paths = dict.fromkeys(str(each.target) for each in inner.graph.nodes if each.op == "get_attr")
            for path in (path for path in paths if path not in split.cuts):
                each = attribute(inner, path)
                if isinstance(each, torch.nn.Parameter) and each.requires_grad:
                    self.wholes[path] = torch.nn.Parameter(_replicate(each.detach(), mesh))
        for number, each in enumerate([*self.shares.values(), *self.wholes.values()]):
            self.register_parameter(f"share {number}", each)
        #: Bytes sent to sum the gradients of parameters that all have whole.
        self.summed_bytes = 0.0

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        """The block's outputs: whole, or this process's part of sequences."""
        dims = self.split.sequences.dims if self.split.sequences is not None else {}
        names = [each.name for each in next(iter(reversed(self.inner.graph.nodes))).args[0]]
        made = zip(names, _Pass(self).run(*inputs), strict=True)
        return tuple(share_of(value, dims[name], self.mesh) if name in dims else whole(value) for name, value in made)

    def gradients(self) -> dict[str, torch.Tensor]:
        """The whole gradient of every parameter that is cut or of which processes have parts, by the graph's attribute.

        All ask for it; those without a gradient are left out.
        """
        found = {path: self._gather(path, each.grad) for path, each in self.shares.items() if each.grad is not None}
        for path, grad in ((path, each.grad) for path, each in self.wholes.items() if each.grad is not None):
            if isinstance(grad.placements[0], Partial):
                self.summed_bytes += ring(self.mesh.size()) * grad.numel() * grad.element_size()
            found[path] = grad.full_tensor()
        return found

    def weights(self) -> dict[str, torch.Tensor]:
        """Every parameter that is cut, whole, by the graph's attribute: all ask for it."""
        return {path: self._gather(path, share.detach()) for path, share in self.shares.items()}

    def _gather(self, path: str, share: DTensor) -> torch.Tensor:
        cut, gathered = self.split.cuts[path], share.full_tensor()
        order = _order(cut, self.split.degree).to(gathered.device)
        return torch.empty_like(gathered).index_copy_(cut.dim, order, gathered)


def _order(cut: Cut, degree: int) -> torch.Tensor:
    """The places of a parameter's dimension, those of each process next to each other."""
    starts = [sum(cut.parts[:number]) for number in range(len(cut.parts))]
    return torch.cat(
        [
            torch.arange(start + rank * width // degree, start + (rank + 1) * width // degree)
            for rank in range(degree)
            for start, width in zip(starts, cut.parts, strict=True)
        ]
    )


def _share(parameter: Any, cut: Cut, mesh: DeviceMesh) -> Any:
    """This process's share of a parameter, a parameter of its own."""
    whole = parameter.detach()
    own = _order(cut, mesh.size()).to(whole.device).chunk(mesh.size())[mesh.get_local_rank()]
    local = whole.index_select(cut.dim, own)
    made = DTensor.from_local(
        local, mesh, [Shard(cut.dim)], run_check=False, shape=whole.shape, stride=torch.empty_like(whole).stride()
    )
    return torch.nn.Parameter(made, parameter.requires_grad)


def whole(value: Any) -> Any:
    """A value as a plain one, gathered or summed where processes have parts of it."""
    return value.redistribute(placements=[Replicate()]).to_local() if isinstance(value, DTensor) else value


def part_of(local: torch.Tensor, dim: int, mesh: DeviceMesh) -> DTensor:
    """The tensor of which processes have equal parts along a dimension, this one ``local``."""
    return DTensor.from_local(local, mesh, [Shard(dim)], run_check=False)


def share_of(value: Any, dim: int, mesh: DeviceMesh) -> DTensor:
    """This process's part of a tensor along a dimension; a plain tensor is one that all processes have whole."""
    return _replicate(value, mesh).redistribute(placements=[Shard(dim)])


class _Products(torch.autograd.Function):  # type: ignore[misc]
    """Products by columns of a value of which each process has a part of the tokens, with matrices and their biases.

    What is kept for the backward pass is the part alone.
    """

    @staticmethod
    def forward(ctx: Any, mesh: DeviceMesh, dim: int, share: torch.Tensor, *given: Any) -> tuple[torch.Tensor, ...]:
        matrices, biases = given[: len(given) // 2], given[len(given) // 2 :]
        ctx.save_for_backward(share, *matrices)
        ctx.mesh, ctx.dim, ctx.with_bias = mesh, dim, [bias is not None for bias in biases]
        rows = _gathered(share, dim, mesh).flatten(0, -2)
        made = [rows @ matrix for matrix in matrices]
        return tuple(each if bias is None else each + bias for each, bias in zip(made, biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        share, *matrices = ctx.saved_tensors
        scattered, others = None, [None] * 2 * len(matrices)
        if "B" in Wanted.kinds:
            parts = [gradient @ matrix.t() for gradient, matrix in zip(gradients, matrices, strict=True)]
            shape = [*share.shape]
            shape[ctx.dim] *= ctx.mesh.size()
            summed = DTensor.from_local(sum(parts[1:], parts[0]).view(shape), ctx.mesh, [Partial()], run_check=False)
            scattered = summed.redistribute(placements=[Shard(ctx.dim)]).to_local()
        if "W" in Wanted.kinds:
            rows = _gathered(share, ctx.dim, ctx.mesh).flatten(0, -2)
            others = [rows.t() @ gradient for gradient in gradients]
            others += [gradient.sum(0) if has else None for gradient, has in zip(gradients, ctx.with_bias, strict=True)]
        return None, None, scattered, *others


def _gathered(share: torch.Tensor, dim: int, mesh: DeviceMesh) -> torch.Tensor:
    return whole(part_of(share.detach(), dim, mesh))


class _Pass(fx.Interpreter):  # type: ignore[misc]
    """One forward pass of a block."""

    def __init__(self, block: Sharded) -> None:
        super().__init__(block.inner)
        self.block, self.copies = block, dict[str, Any]()
        self.early = dict[str, Any]()  # products by columns that were computed with another one of their operand

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        own = self.block.shares.get(target, self.block.wholes.get(target))
        return super().get_attr(target, args, kwargs) if own is None else own

    def run_node(self, node: Any) -> Any:
        if node.op != "call_function":
            return super().run_node(node)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        split, mesh = self.block.split, self.block.mesh
        if split.sequences is not None and node.name in split.sequences.viewed:
            return args[0]
        for products in split.sequences.gathered if split.sequences is not None else ():
            if node.name in products:
                if node.name not in self.early:
                    self.early |= self._products(args[split.columns[node.name]], products)
                return self.early.pop(node.name)
        if node.name in split.columns:
            place = split.columns[node.name]
            left = node.args[place].name
            if left not in self.copies:  # one for all products that take it: its gradient is summed once
                self.copies[left] = _replicate(args[place], mesh)
            args = (*args[:place], self.copies[left], *args[place + 1 :])
        if node.name in split.apart:
            return _taken_apart(node.target, *args, mesh=mesh)
        made = _call(node.target, args, kwargs, mesh, split.sequences is not None)
        if split.sequences is None:
            return whole(made) if node.name in split.rows else made
        dim = split.sequences.scattered.get(node.name)
        return made if dim is None else made.redistribute(placements=[Shard(dim)])

    def _products(self, value: Any, products: Mapping[str, Column]) -> dict[str, Any]:
        """All products by columns that take a value of which each process has a part."""
        mesh, shares = self.block.mesh, self.block.shares
        dim = max(0, value.dim() - 2)
        matrices = [shares[each.matrix].to_local() for each in products.values()]
        matrices = [
            matrix if each.out else matrix.t() for each, matrix in zip(products.values(), matrices, strict=True)
        ]
        biases = [None if each.bias is None else shares[each.bias].to_local() for each in products.values()]
        made = _Products.apply(mesh, dim, share_of(value, dim, mesh).to_local(), *matrices, *biases)
        found = {}
        for (name, each), part in zip(products.items(), made, strict=True):
            local = part.view(*each.shape[:-1], -1)
            found[name] = part_of(local, local.dim() - 1, mesh)
        return found


def _replicate(value: Any, mesh: DeviceMesh) -> Any:
    """A plain tensor as one that all processes have whole; its gradient is summed where they have parts of it."""
    if isinstance(value, torch.Tensor) and not isinstance(value, DTensor):
        return DTensor.from_local(value, mesh, [Replicate()], run_check=False)
    return value


def _call(target: Callable[..., Any], args: Any, kwargs: Any, mesh: DeviceMesh, has_parts: bool) -> Any:
    """An op on tensors of which some are shared.

    ``has_parts``: gradients of whole ones are parts, as of weights that each process uses for its part of a sequence.
    """
    shared = [each for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, DTensor)]
    dim = _own_heads(target, shared)
    if dim is not None:  # dims are counted from the last one: masks may have fewer
        args, kwargs = _pytree.tree_map(lambda each: _local(each, dim, mesh), (args, kwargs))
        made = target(*args, **kwargs)
        return DTensor.from_local(made, mesh, [Shard(dim + made.dim())], run_check=False)
    is_whole = not has_parts and all(isinstance(each.placements[0], Replicate) for each in shared)
    if target in ATTENTION or is_whole:
        args, kwargs = _pytree.tree_map(whole, (args, kwargs))  # DTensor has no rule for all kernels of attention
    elif shared:
        args, kwargs = _pytree.tree_map(lambda each: _replicate(each, mesh), (args, kwargs))
    return target(*args, **kwargs)


def _own_heads(target: Any, shared: list[DTensor]) -> int | None:
    """The dimension, from the last one, of which each process has its part of all operands of an attention product."""
    wanted = 3 if target in ATTENTION else 2
    if target not in (*ATTENTION, *_PRODUCTS) or len(shared) < wanted:
        return None
    dims = {each.placements[0].dim - each.dim() for each in shared if isinstance(each.placements[0], Shard)}
    is_one = len(dims) == 1 and all(isinstance(each.placements[0], Shard) for each in shared)
    return dims.pop() if is_one and max(dims) < -2 else None


def _local(value: Any, dim: int, mesh: DeviceMesh) -> Any:
    """This process's part of a tensor; of a plain one, too, if it has more than one place in the dimension."""
    if isinstance(value, torch.Tensor) and not isinstance(value, DTensor):
        if value.dim() < -dim or value.shape[dim] == 1:
            return value
        value = _replicate(value, mesh).redistribute(placements=[Shard(dim + value.dim())])
    return value.to_local() if isinstance(value, DTensor) else value


def _taken_apart(target: Any, value: DTensor, *given: Any, mesh: DeviceMesh) -> Any:
    """Parts of a tensor, or a slice, whose shares have a share of each part (`splits.Cut`)."""
    t = mesh.size()
    if target is aten.slice.Tensor:
        dim, start, end = slice_of(value.shape, given)
        local: tuple[Any, ...] = (dim, start // t, end // t)
    else:
        size, dim = given if len(given) > 1 else (given[0], 0)
        shares = [width // t for width in size] if isinstance(size, list | tuple) else size // t
        local = (size if target is aten.chunk.default else shares, dim)
    placement = Shard(dim % value.dim())
    if value.placements[0] != placement:
        raise RuntimeError(f"{target} takes apart dimension {dim} of a tensor that is cut as {value.placements[0]}")
    made = target(value.to_local(), *local)
    return _pytree.tree_map(lambda part: DTensor.from_local(part, mesh, [placement], run_check=False), made)


class Counted(TorchDispatchMode):  # type: ignore[misc]
    """Counts the bytes that this process sends in collective operations of DTensor, as rings of ``degree`` do them."""

    def __init__(self, degree: int) -> None:
        super().__init__()
        self.degree, self.num_bytes = degree, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented  # it calls ops on plain tensors
        made = func(*args, **(kwargs or {}))
        if func.namespace == "_c10d_functional" and func._opname.startswith(("all_", "reduce_")):
            size = max(each.numel() * each.element_size() for each in (args[0], made))
            sums = ring(self.degree) * size
            self.num_bytes += sums if func._opname == "all_reduce" else sums / 2
        return made

"""A block that the processes of a tensor-parallel stage share, run with torch.distributed.tensor (DTensor).

What comes in and goes out is whole on every process. A product by columns takes its operand as a replicated DTensor,
the gradient of which is summed when it leaves; a product by rows gives a partial DTensor, which is summed at once.
Between the two, DTensor carries shares through the ops of the graph. ``parallelize_module`` cuts modules; a block of an
exported graph has none, so its parameters are cut here.

Source: Megatron-LM (columns, then rows); torch.distributed.tensor of PyTorch 2.13, public.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from planner.training.capture.ops import ATTENTION
from planner.training.capture.sharding import ring
from planner.training.runtime.program import attribute
from planner.training.runtime.splits import Cut, Split, slice_of

aten: Any = torch.ops.aten
_PRODUCTS = (aten.matmul.default, aten.bmm.default)


class Sharded(torch.nn.Module):  # type: ignore[misc]
    """A process's share of a block: ``forward`` takes and gives what the block's module does.

    Parameters
    ----------
    inner
        The block's module, with whole parameters.
    mesh
        The processes that share it, one dimension.
    """

    def __init__(self, inner: Any, split: Split, mesh: DeviceMesh) -> None:
        super().__init__()
        self.inner, self.split, self.mesh = inner, split, mesh
        self.shares = {path: _share(attribute(inner, path), cut, mesh) for path, cut in split.cuts.items()}
        for number, share in enumerate(self.shares.values()):
            self.register_parameter(f"share {number}", share)

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        """The block's outputs, whole."""
        return tuple(map(_whole, _Pass(self).run(*inputs)))

    def gradients(self) -> dict[str, torch.Tensor]:
        """The whole gradient of every parameter that is cut and has one, by the graph's attribute: all ask for it."""
        return {path: self._gather(path, each.grad) for path, each in self.shares.items() if each.grad is not None}

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


def _whole(value: Any) -> Any:
    return value.redistribute(placements=[Replicate()]).to_local() if isinstance(value, DTensor) else value


class _Pass(fx.Interpreter):  # type: ignore[misc]
    """One forward pass of a block."""

    def __init__(self, block: Sharded) -> None:
        super().__init__(block.inner)
        self.block, self.copies = block, dict[str, Any]()

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.block.shares[target] if target in self.block.shares else super().get_attr(target, args, kwargs)

    def run_node(self, node: Any) -> Any:
        if node.op != "call_function":
            return super().run_node(node)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        split, mesh = self.block.split, self.block.mesh
        if node.name in split.columns:
            place = split.columns[node.name]
            left = node.args[place].name
            if left not in self.copies:  # one for all products that take it: its gradient is summed once
                self.copies[left] = _replicate(args[place], mesh)
            args = (*args[:place], self.copies[left], *args[place + 1 :])
        if node.name in split.apart:
            return _taken_apart(node.target, *args, mesh=mesh)
        made = _call(node.target, args, kwargs, mesh)
        return _whole(made) if node.name in split.rows else made


def _replicate(value: Any, mesh: DeviceMesh) -> Any:
    """A plain tensor as one that all processes have whole; its gradient is summed where they have parts of it."""
    if isinstance(value, torch.Tensor) and not isinstance(value, DTensor):
        return DTensor.from_local(value, mesh, [Replicate()], run_check=False)
    return value


def _call(target: Callable[..., Any], args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
    """An op on tensors of which some are shared."""
    shared = [each for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, DTensor)]
    dim = _own_heads(target, shared)
    if dim is not None:  # dims are counted from the last one: masks may have fewer
        args, kwargs = _pytree.tree_map(lambda each: _local(each, dim, mesh), (args, kwargs))
        made = target(*args, **kwargs)
        return DTensor.from_local(made, mesh, [Shard(dim + made.dim())], run_check=False)
    if target in ATTENTION or all(isinstance(each.placements[0], Replicate) for each in shared):
        args, kwargs = _pytree.tree_map(_whole, (args, kwargs))  # DTensor has no rule for all kernels of attention
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

"""One process of a run: the passes of a replica of its stages, on torch.distributed, and the sums of gradients."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from planner.training.runtime.exchange import Exchange
from planner.training.runtime.halves import Later, backward_to_inputs, backward_to_weights
from planner.training.runtime.job import Job, Report
from planner.training.runtime.layout import Pass, Timing
from planner.training.runtime.program import attribute
from planner.training.runtime.stages import Block, Tensor
from planner.training.runtime.states import Team, scatter, step_share
from planner.training.runtime.sums import GradientSum, gradient_sums, sharing


@dataclass
class _Kept:
    """What a sample leaves for its backward pass."""

    received: dict[str, Any]
    sent: dict[str, Any]
    loss: Any = None
    later: Later = field(default_factory=Later)
    storages: dict[int, int] = field(default_factory=dict)


#: The processes that sum gradients, their type, and the stages that have the weights.
_Key = tuple[tuple[int, ...], str, tuple[int, ...]]
#: Pairs of weights and gradients, and whose they are.
_Shared = dict[_Key, tuple[Any, list[tuple[Any, Any]]]]


class Process(Exchange):
    """A replica of a stage, with its own point-to-point messages; ``number`` is that of its duty.

    ``first`` is the first stage of a process that has several: it keeps the messages among them, and has made the
    groups that processes make in one order.
    """

    def __init__(self, job: Job, number: int, first: Any = None) -> None:
        self.mesh: Any = _mesh(job, job.layout.rank_of(number)) if first is None else first.mesh
        super().__init__(job, number, first)
        self.is_apart = "W" in self.duty.order
        self.blocks = job.stages.blocks[self.stage]
        self.parameters = job.stages.parameters[self.stage]
        for block in self.blocks:
            _move(block.module, self.device)
        self._share()
        self.parts = {each.name: each.dim for each in self.incoming if self.stage in each.shared}
        self.kept: dict[int, _Kept] = {}
        self.losses: dict[int, float] = {}
        self.held_bytes = self.state_bytes = 0
        self.gradient_bytes = 0.0
        self.groups: Mapping[tuple[int, ...], Any] = {}
        self.scattered: dict[_Key, Any] = {}  # shares of gradients
        self.fixed = {
            _storage(each)._cdata
            for block in self.blocks
            for each in (*block.module.parameters(), *block.module.buffers())
        }

    def _share(self) -> None:
        """Take a share of the blocks that the processes of this replica share."""
        self.sharded: list[Any] = []
        self.shares: dict[str, Any] = {}  # by the parameter's name
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        self.collectives: Any = nullcontext()
        if self.mesh is None:
            return
        from planner.training.runtime.sharded import Counted, Sharded

        self.collectives = Counted(self.duty.degree)
        blocks = []
        for block in self.blocks:
            if block.split is not None:
                self.sharded.append(Sharded(block.module, block.split, self.mesh))
                shares = self.sharded[-1].shares.items()
                self.shares |= {names[id(attribute(block.module, path))]: share for path, share in shares}
                block = replace(block, module=self.sharded[-1])
            blocks.append(block)
        self.blocks = tuple(blocks)

    def report(self, timings: Sequence[Timing], end_s: float) -> Report:
        """What came of it, gradients summed."""
        speaks = not self.duty.replica and not self.duty.shard
        gradients = {name: _on_cpu(each.grad) for name, each in self.parameters.items()} if speaks else {}
        summed = getattr(self.collectives, "num_bytes", 0.0)
        losses = {} if self.duty.shard else self.losses
        sent = self.bytes_sent, self.held_bytes, summed, self.gradient_bytes
        stepped = self.parameters if speaks and self.job.layout.shares_states else {}
        weights = {name: _on_cpu(each.detach()) for name, each in stepped.items()}
        return Report(self.place, losses, gradients, *sent, tuple(timings), None, weights, self.state_bytes, end_s)

    def iterate(self) -> list[Timing]:
        """Run all passes; when each ran, once all that it waits for had come."""
        timings = [self.perform(task) for task in self.duty.passes]
        self.wait()
        return timings

    def perform(self, task: Pass) -> Timing:
        """Run a pass, once all that it waits for has come."""
        came = [{} if task.kind == "W" else self._await(sample, task.is_forward) for sample in task.samples]
        start = time.perf_counter()
        for sample, tensors in zip(task.samples, came, strict=True):
            if task.kind == "W":
                self._backward_to_weights(sample)
            else:
                (self._forward if task.is_forward else self._backward)(sample, tensors)
            if self.job.layout.scatters and task.kind == ("W" if self.is_apart else "B"):
                self._scatter()
        return self.timing(task, start)

    def _scatter(self) -> None:
        """Sum the gradients of a backward pass, and keep this process's share of them."""
        shared: _Shared = {}
        for name, each in gradient_sums(self.job.stages, self.job.layout).items():
            parameter = self.parameters.get(name)
            if parameter is not None and parameter.requires_grad:
                parameter.grad = parameter.new_zeros(parameter.shape) if parameter.grad is None else parameter.grad
                self.sum(parameter, each, self.groups, shared)
                parameter.grad = None
        for key, (_, pairs) in sorted(shared.items(), key=lambda item: item[0]):
            share, sent = scatter([gradient for _, gradient in pairs], _team(self, key[0], self.groups))
            self.gradient_bytes += sent
            self.scattered[key] = self.scattered[key] + share if key in self.scattered else share

    def timing(self, task: Pass, start: float) -> Timing:
        """A pass that began at ``start`` and ends now."""
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)
        return Timing(self.place, task.kind, task.index, start, time.perf_counter())

    def _forward(self, sample: int, received: dict[str, Any]) -> None:
        import torch

        values = self.compute(sample, received)
        kept = self.kept[sample]
        for each in self.outgoing:
            own = self._own(each, values[each.name])
            if each.has_gradient:  # the tensor itself is no longer needed here
                kept.sent[each.name] = torch.autograd.graph.get_gradient_edge(own)
            for taker in each.targets:
                self._pass_on(own, each, taker, sample, True)
        kept.loss = self.loss(values, sample)

    def compute(self, sample: int, received: dict[str, Any]) -> dict[str, Any]:
        """What the stage makes of a sample and the tensors of other stages, by name; notes what autograd keeps."""
        import torch

        leaves = self.job.program.leaves(sample)
        moved = [each.to(self.device) if isinstance(each, torch.Tensor) else each for each in leaves]
        values = {**dict(zip(self.job.stages.inputs, moved, strict=True)), **received}
        values |= {name: self._part(received[name], dim) for name, dim in self.parts.items()}
        kept = self.kept[sample] = _Kept(received, {})
        save = self._saver(kept.storages, moved)
        with torch.autograd.graph.saved_tensors_hooks(save, lambda saved: saved):
            for block in self.blocks:
                values |= self._run(block, values, save)
                for name in block.dropped:
                    values.pop(name, None)
        held: dict[int, int] = {}
        for other in self.kept.values():
            held |= other.storages
        self.held_bytes = max(self.held_bytes, sum(held.values()))
        return values

    def _run(self, block: Block, values: Mapping[str, Any], save: Callable[[Any], Any]) -> dict[str, Any]:
        """The outputs of a block by name. What a recomputed one keeps are its inputs alone."""
        import torch
        from torch.utils.checkpoint import checkpoint

        given = [self._moved(block, name, values[name]) for name in block.inputs]
        if not block.recomputed:
            made = block.module(*given)
        else:
            inputs = self.job.stages.inputs
            given = [
                _alone(each) if isinstance(each, torch.Tensor) and name not in inputs else each
                for name, each in zip(block.inputs, given, strict=True)
            ]
            for each in given:
                if isinstance(each, torch.Tensor):
                    save(each)
            again = {"use_reentrant": False, "early_stop": False, "preserve_rng_state": False}  # no op draws numbers
            made = checkpoint(block.module, *given, **again)
        return dict(zip(block.outputs, made, strict=True))

    def _saver(self, storages: dict[int, int], inputs: Iterable[Any]) -> Callable[[Any], Any]:
        """Notes the storages that autograd keeps for a backward pass, those of parameters and inputs apart."""
        import torch

        known = self.fixed | {each.untyped_storage()._cdata for each in inputs if isinstance(each, torch.Tensor)}

        def save(tensor: Any) -> Any:
            storage = _storage(tensor)
            if storage._cdata not in known:
                storages[storage._cdata] = storage.nbytes()
            return tensor.detach()  # a tensor that its own operation saves would keep itself alive

        return save

    def loss(self, values: Mapping[str, Any], sample: int) -> Any:
        """The stage's part of the loss of a sample, noted; ``None`` if it makes no output that adds to it."""
        parts = [
            self.job.objective.part(self._moved(None, name, values[name]), output, sample)
            for output, name in self.job.stages.results[self.stage]
        ]
        found = [part for part in parts if part is not None]
        if not found:
            return None
        loss = sum(found[1:], found[0])
        self.losses[sample] = float(loss.detach())
        return loss

    def _backward(self, sample: int, came: dict[str, Any]) -> None:
        import torch

        kept = self.kept[sample]
        roots, gradients = [kept.sent[name] for name in came], list(came.values())
        if kept.loss is not None:
            roots.append(kept.loss)
            gradients.append(torch.full_like(kept.loss, 1.0 / self.job.layout.num_samples))
        leaves = {each.name: kept.received[each.name] for each in self.incoming if each.has_gradient}
        if self.is_apart:
            found, kept.later = backward_to_inputs(roots, gradients, list(leaves.values()))
        else:
            del self.kept[sample]
            if roots:
                torch.autograd.backward(roots, gradients)
            found = [leaf.grad for leaf in leaves.values()]
        for each, gradient in zip((each for each in self.incoming if each.has_gradient), found, strict=True):
            sent = torch.zeros_like(leaves[each.name]) if gradient is None else gradient
            self._pass_on(sent, each, each.source, sample, False)

    def _backward_to_weights(self, sample: int) -> None:
        """The gradients of weights; of a stage that received nothing that has one, the whole backward pass."""
        backward_to_weights(self.kept.pop(sample).later)

    def _moved(self, block: Block | None, name: str, value: Any) -> Any:
        """A value as a block takes it, whole or this process's part of a sequence; whole for none."""
        if self.mesh is None:
            return value
        from planner.training.runtime.sharded import share_of, whole

        dims = block.split.sequences.dims if block and block.split and block.split.sequences else {}
        return share_of(value, dims[name], self.mesh) if name in dims else whole(value)

    def _part(self, tensor: Any, dim: int) -> Any:
        """This process's part of a tensor, plain, as one that is shared."""
        from planner.training.runtime.sharded import part_of

        return part_of(tensor, dim, self.mesh)

    def _own(self, each: Tensor, value: Any) -> Any:
        """What this process has of a tensor that goes to other stages, as a plain one."""
        if self.stage not in each.shared:
            return self._moved(None, each.name, value)
        from planner.training.runtime.sharded import share_of

        return share_of(value, each.dim, self.mesh).to_local()

    def sum(self, parameter: Any, each: GradientSum, groups: Mapping[tuple[int, ...], Any], shared: _Shared) -> None:
        """Sum a gradient, or this process's share of it, in place; where states are shared, note it for `_step`."""
        from torch import distributed

        members = each.group_of(self.rank)
        weight, local = (getattr(one, "_local_tensor", one).detach() for one in (parameter, parameter.grad))
        if self.job.layout.shares_states and members:
            key = members, str(local.dtype), each.stages
            shared.setdefault(key, (self, []))[1].append((weight, local))
            return
        if len(members) > 1:
            distributed.all_reduce(local, group=groups[members])
        self.count_sum(local, each)

    def count_sum(self, gradient: Any, each: GradientSum) -> None:
        """Note what a ring sends to sum a gradient over the processes that have it."""
        from planner.training.capture.sharding import ring

        members = len(each.group_of(self.rank)) or 1
        self.gradient_bytes += ring(members) * gradient.numel() * gradient.element_size()


def _step(shared: _Shared, groups: Mapping[tuple[int, ...], Any]) -> None:
    """Sum the gradients and step the weights that were noted, each process its share; then none are."""
    for members, kind, stages in sorted(shared):
        member, pairs = shared.pop((members, kind, stages))
        team = _team(member, members, groups)
        share = member.scattered.pop((members, kind, stages), None)
        if share is None:
            share, sent = scatter([gradient for _, gradient in pairs], team)
            member.gradient_bytes += sent
        sent, held = step_share(pairs, share, team)
        member.gradient_bytes += sent
        member.state_bytes += held


def _team(member: Process, members: tuple[int, ...], groups: Mapping[tuple[int, ...], Any]) -> Team:
    """Those that share states with a process, of all that sum a gradient with it."""
    parts = sharing(member.job.layout, members)
    own = next(part for part in parts if member.rank in part)
    place = own.index(member.rank)
    return Team(place, len(own), groups[own], len(parts), groups.get(tuple(part[place] for part in parts)))


def run_together(members: Sequence[Process]) -> list[Report]:
    """Run the iteration with all stages of a process, in its order, and sum gradients."""
    import torch
    from torch import distributed

    job, rank = members[0].job, members[0].rank
    groups = _groups(job)
    for member in members:
        member.groups = groups
        for parameter in member.parameters.values():
            parameter.grad = None
    distributed.barrier()
    if len(members) == 1:
        with members[0].collectives:
            timings = {members[0].place: members[0].iterate()}
    else:
        by_number = {member.place: member for member in members}
        timings = {number: [] for number in by_number}
        for number, task in job.layout.passes_of(rank):
            with by_number[number].collectives:
                timings[number].append(by_number[number].perform(task))
        for member in members:
            member.wait()
    _reduce(job, members, groups)
    if members[0].device.type == "cuda":
        torch.cuda.synchronize(members[0].device)
    end_s = time.perf_counter()
    distributed.barrier()
    return [member.report(timings[member.place], end_s) for member in members]


def _reduce(job: Job, members: Sequence[Process], groups: Mapping[tuple[int, ...], Any]) -> None:
    """Sum the gradients of each parameter over all replicas that use it, and stages that share it.

    Those of shared blocks are gathered in between, to be compared whole. All processes go through them in one order.
    """
    import torch

    sums, shared = gradient_sums(job.stages, job.layout), _Shared()
    users = {name: [member for member in members if name in member.parameters] for name in sums}
    for name, each in sums.items():
        for member in users[name]:
            if each.is_cut and name in member.shares and member.shares[name].requires_grad:
                share = member.shares[name]
                gradient = torch.zeros_like(share) if share.grad is None else share.grad
                share.grad = gradient.redistribute(placements=share.placements)
                member.sum(share, each, groups, shared)
    _step(shared, groups)
    for own, block in ((member, block) for member in members for block in member.sharded):
        for path, gradient in block.gradients().items():
            parameter = attribute(block.inner, path)
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        own.gradient_bytes += block.summed_bytes
        if job.layout.shares_states:
            for path, weight in block.weights().items():
                attribute(block.inner, path).detach().copy_(weight)
    for name, each in sums.items():
        for member in users[name][:1]:  # stages of a process that share a parameter have it once
            parameter = member.parameters[name]
            if parameter.requires_grad and not each.is_cut:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                member.sum(parameter, each, groups, shared)
    _step(shared, groups)


def _alone(tensor: Any) -> Any:
    """The tensor, or a copy where it is a view of more: what is kept of it would be all that it is a view of."""
    more = _storage(tensor).nbytes() > tensor.numel() * tensor.element_size()
    return tensor.clone() if more else tensor


def _groups(job: Job) -> dict[tuple[int, ...], Any]:
    """A group for all processes that sum a gradient with each other; made by all in one order."""
    from torch import distributed

    members = {group for each in gradient_sums(job.stages, job.layout).values() for group in each.groups}
    if job.layout.shares_states:
        for parts in [sharing(job.layout, group) for group in members]:
            members |= {*parts, *zip(*parts, strict=True)}
    return {group: distributed.new_group(list(group)) for group in sorted(members) if len(group) > 1}


def _mesh(job: Job, rank: int) -> Any:
    """The processes of this one's replica; ``None`` if it is the only one. Groups are made by all in one order."""
    from torch import distributed

    found = None
    for first, duty in enumerate(job.layout.duties[: job.layout.num_processes]):
        if duty.degree > 1 and not duty.shard:
            group = distributed.new_group(range(first, first + duty.degree))
            if first <= rank < first + duty.degree:
                from torch.distributed.device_mesh import DeviceMesh

                found = DeviceMesh.from_group(group, "cpu" if job.backend == "gloo" else "cuda")
    return found


def _storage(tensor: Any) -> Any:
    """Where a tensor's numbers are; of a shared one, this process's part."""
    return getattr(tensor, "_local_tensor", tensor).untyped_storage()


def _move(module: Any, device: Any) -> None:
    """Bring a block and the devices that its graph names to a device."""
    import torch
    from torch.fx.node import map_aggregate

    if device.type == "cpu":
        return

    def move(each: Any) -> Any:
        return device if isinstance(each, torch.device) else each

    for node in module.graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, move), map_aggregate(node.kwargs, move)
    module.recompile()
    module.to(device)


def _on_cpu(gradient: Any) -> Any:
    return None if gradient is None else gradient.cpu()

"""What a replica of a stage exchanges with other stages, beside its passes: tensors, and their gradients.

A tensor is sent once to each stage that takes it, to the replica that runs the sample, and its gradient comes back
once from each; or (`layout.Layout.is_relayed`) from each stage to the next one, up to the last that takes it. Where a
replica is several processes (tensor parallelism), the first of them receives, and each passes on to the next one. Sends
never wait, so that only the order of passes decides who waits for whom.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from planner.training.runtime.job import Job
from planner.training.runtime.stages import Tensor


class Exchange:
    """The messages of a duty, by its ``number``; ``first`` keeps those among the stages of one process."""

    def __init__(self, job: Job, number: int, first: Any = None) -> None:
        self.job, self.place, self.rank = job, number, job.layout.rank_of(number)
        self.duty = job.layout.duties[number]
        self.stage, self.device = self.duty.stage, job.device_of(self.rank)
        self.box: dict[tuple[int, int, int], Any] = {} if first is None else first.box
        self.owners = job.layout.owners()
        self.incoming = [each for each in job.stages.tensors if self.stage in each.targets]
        self.outgoing = [each for each in job.stages.tensors if each.source == self.stage]
        self.number = {(each.name, each.source): number for number, each in enumerate(job.stages.tensors)}
        self.lines: dict[tuple[int, int, bool], Any] = first.lines if first else {} if job.is_tagged else _lines(job)
        self.unsent: list[tuple[Any, Any]] = []
        self.bytes_sent = 0

    def _await(self, sample: int, is_forward: bool) -> dict[str, Any]:
        """What a pass of a sample waits for: tensors of stages before, or their gradients from those behind, summed."""
        if is_forward:
            return {each.name: self._receive(each, each.source, sample, True) for each in self.incoming}
        found = {}
        for each in self.outgoing:
            if each.has_gradient:
                came = [self._receive(each, taker, sample, False) for taker in each.targets]
                found[each.name] = sum(came[1:], came[0])
        return found

    def wait(self) -> None:
        """Until all that was sent has arrived."""
        for work, _ in self.unsent:
            work.wait()

    def _parts(self, each: Tensor, stage: int, sample: int) -> dict[int, tuple[int, int]]:
        """What the duties of a stage that exchange a tensor with other stages have of its dimension: start and end."""
        first, length = self.owners[stage, sample], max(1, each.shape[each.dim]) if each.shape else 1
        t = self.job.layout.duties[first].degree if stage in each.shared else 1
        return {first + shard: (shard * length // t, (shard + 1) * length // t) for shard in range(t)}

    def _near(self, each: Tensor, stage: int, sample: int) -> int | None:
        """The duty of another stage in this process that has the whole of a tensor, as this one has."""
        number = self.owners[stage, sample] + self.duty.shard
        is_own = self.job.layout.rank_of(number) == self.rank and not each.shared & {stage, self.stage}
        return number if is_own and self.duty.degree > 1 else None

    def _pass_on(self, tensor: Any, each: Tensor, stage: int, sample: int, is_forward: bool) -> None:
        """Send what this process has of a tensor to those of a stage that have a part of it."""
        near = self._near(each, stage, sample)
        if near is not None:
            self._send(tensor, each, near, sample, is_forward)
            return
        start, end = self._parts(each, self.stage, sample).get(self.place, (0, 0))
        for to, (first, last) in self._parts(each, stage, sample).items():
            low, high = max(start, first), min(end, last)
            if low < high:
                part = tensor if (low, high) == (start, end) else tensor.narrow(each.dim, low - start, high - low)
                self._send(part, each, to, sample, is_forward)

    def _send(self, tensor: Any, each: Tensor, to: int, sample: int, is_forward: bool) -> None:
        """Send to a duty, by its number; within a process it is only kept."""
        from torch import distributed

        self.unsent = [(work, data) for work, data in self.unsent if not work.is_completed()]
        data, rank, tag = tensor.detach().contiguous(), self.job.layout.rank_of(to), self._tag(each, sample, is_forward)
        if rank == self.rank:
            self.box[self.place, to, tag] = data
            return
        group, tag = (None, tag) if self.job.is_tagged else (self.lines[self.place, to, is_forward], 0)
        self.unsent.append((distributed.isend(data, rank, group=group, tag=tag), data))
        self.bytes_sent += data.numel() * data.element_size()

    def _receive(self, each: Tensor, stage: int, sample: int, is_forward: bool) -> Any:
        import torch

        near = self._near(each, stage, sample)
        if near is not None:
            data = self._take(each, each.shape, near, sample, is_forward)
            return data.requires_grad_() if is_forward and each.has_gradient else data
        start, end = self._parts(each, self.stage, sample).get(self.place, (0, 0))
        shape, came = list(each.shape), []
        for source, (first, last) in self._parts(each, stage, sample).items():
            low, high = max(start, first), min(end, last)
            if low < high:
                shape[each.dim : each.dim + 1] = [high - low] if shape else []
                came.append(self._take(each, shape, source, sample, is_forward))
        if not came:  # the process before passes on what all have whole
            came.append(self._take(each, each.shape, self.place - 1, sample, is_forward))
        data = came[0] if len(came) == 1 else torch.cat(came, each.dim)
        if self.stage not in each.shared and self.duty.shard + 1 < self.duty.degree:
            self._send(data, each, self.place + 1, sample, is_forward)
        return data.requires_grad_() if is_forward and each.has_gradient else data

    def _take(self, each: Tensor, shape: Sequence[int], source: int, sample: int, is_forward: bool) -> Any:
        """A message from a duty, by its number."""
        import torch
        from torch import distributed

        rank, tag = self.job.layout.rank_of(source), self._tag(each, sample, is_forward)
        if rank == self.rank:
            return self.box.pop((source, self.place, tag))
        data = torch.empty(*shape, dtype=each.dtype, device=self.device)
        group, tag = (None, tag) if self.job.is_tagged else (self.lines[source, self.place, is_forward], 0)
        distributed.recv(data, rank, group=group, tag=tag)
        return data

    def _tag(self, each: Tensor, sample: int, is_forward: bool) -> int:
        """The number of a message, the same to all stages that take a tensor."""
        return (sample * len(self.number) + self.number[each.name, each.source]) * 2 + is_forward


def _lines(job: Job) -> dict[tuple[int, int, bool], Any]:
    """A group for each pair of duties in two processes and direction, where messages have no tags."""
    from torch import distributed

    made, owners = job.layout, job.layout.owners()
    shards = (number for number, duty in enumerate(made.duties) if duty.shard)
    found = {(number - 1, number, way) for number in shards for way in (True, False)}

    def having(each: Tensor, stage: int, sample: int) -> range:
        first = owners[stage, sample]
        return range(first, first + (made.duties[first].degree if stage in each.shared else 1))

    for each in job.stages.tensors:
        for taker in each.targets:
            for sample in range(made.num_samples):
                for source, to in itertools.product(*(having(each, stage, sample) for stage in (each.source, taker))):
                    found |= {(source, to, True), (to, source, False)}
    pairs = {line: sorted(map(made.rank_of, line[:2])) for line in sorted(found)}
    return {line: distributed.new_group(pair) for line, pair in pairs.items() if pair[0] != pair[1]}

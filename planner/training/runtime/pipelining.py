"""The same plan through torch.distributed.pipelining, where its rules allow it.

Its stages exchange tensors with their neighbours alone, all have equally many replicas, and every process runs 1F1B.
Blocks, loss, reduction of gradients and measurements are those of `process.Process`.

Source: torch.distributed.pipelining of PyTorch 2.13 (``PipelineStage``, ``Schedule1F1B``), public but not stable.
"""

import time
from typing import Any

from planner.process.errors import UsageError
from planner.training.runtime.job import Job
from planner.training.runtime.layout import Pass, Timing
from planner.training.runtime.process import Process


def expect_pipelined(job: Job) -> None:
    """`UsageError` if torch.distributed.pipelining cannot run the plan."""
    for refusal in _refusals(job):
        raise UsageError.at("--runtime", "pipelining", f"own: {refusal}")


def _refusals(job: Job) -> list[str]:
    made, stages = job.layout, job.stages
    count = len(stages.blocks)
    replicas = [sum(duty.stage == stage for duty in made.duties) for stage in range(count)]
    found = []
    if count < 2:
        found.append("there is one stage")
    if made.turns:
        found.append("a process has several stages")
    if any(duty.degree > 1 for duty in made.duties):
        found.append("a stage is tensor-parallel")
    if len(set(replicas)) > 1:
        found.append(f"stages have {', '.join(map(str, replicas))} replicas")
    for each in stages.tensors:
        if each.targets != (each.source + 1,):
            found.append(f"{each.name} goes from stage {each.source} to {', '.join(map(str, each.targets))}")
    for duty in made.duties:
        order = duty.order
        if any(len(task.samples) > 1 for task in duty.passes) or order != _order(len(order) // 2, count - duty.stage):
            found.append(f"stage {duty.stage} does not run single micro-batches in 1F1B")
        if len(order) // 2 < count:
            found.append(f"{len(order) // 2} micro-batches of a process are fewer than the {count} stages")
    adding = [
        stage
        for stage, results in enumerate(stages.results)
        if any(job.objective.loss in (None, output) for output, _ in results)
    ]
    if adding != [count - 1]:
        found.append("the loss is not made in the last stage alone")
    if len(stages.results[-1]) > 1 or job.objective.loss is not None:
        found.append("the last stage returns more than one tensor, or a number")
    return found


def _order(count: int, warm_up: int) -> str:
    from formulations.simulation.simulate_graph import kfkb

    return kfkb(count, warm_up, 1)


class Pipelined(Process):
    """A replica of a stage in a ``Schedule1F1B``."""

    def iterate(self) -> list[Timing]:
        """Run all passes; measured ones include no waiting."""
        import torch
        from torch.distributed.pipelining import Schedule1F1B

        count = len(self.job.stages.blocks)
        group = self._group()
        own = [task.samples[0] for task in self.duty.passes if task.is_forward]
        stage, timings = self._stage(count, group, own)
        schedule = Schedule1F1B(stage, len(own), self._loss, scale_grads=False)
        samples = torch.tensor(own, device=self.device)
        if self.stage == count - 1:
            schedule.step(sample=samples, target=samples, losses=[])
        else:
            schedule.step(sample=samples)
        return timings

    def _group(self) -> Any:
        """The processes of this replica of every stage; groups are made by all processes in one order."""
        from torch import distributed

        duties = self.job.layout.duties
        found = {}
        for replica in sorted({duty.replica for duty in duties}):
            ranks = [rank for rank, duty in enumerate(duties) if duty.replica == replica]
            found[replica] = distributed.new_group(ranks)
        return found[self.duty.replica]

    def _stage(self, count: int, group: Any, own: list[int]) -> tuple[Any, list[Timing]]:
        import torch
        from torch.distributed.pipelining import PipelineStage

        process, timings = self, []

        class Stage(torch.nn.Module):  # type: ignore[misc]
            def forward(self, *tensors: Any, sample: Any) -> Any:
                names = [each.name for each in process.incoming]
                values = process.compute(int(sample), dict(zip(names, tensors, strict=True)))
                made = [each.name for each in process.outgoing]
                made = made or [name for _, name in process.job.stages.results[process.stage]]
                return tuple(values[name].contiguous() for name in made)

        class Timed(PipelineStage):  # type: ignore[misc]
            def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
                start = time.perf_counter()
                made = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
                timings.append(process.timing(Pass("F", fwd_chunk_id, ()), start))
                return made

            def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
                start = time.perf_counter()
                made = super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
                timings.append(process.timing(Pass("B", bwd_chunk_id, ()), start))
                del process.kept[own[bwd_chunk_id]]
                return made

            def get_fwd_send_ops(self, fwd_chunk_id: int) -> Any:
                return process.count_bytes(super().get_fwd_send_ops(fwd_chunk_id))

            def get_bwd_send_ops(self, bwd_chunk_id: int) -> Any:
                return process.count_bytes(super().get_bwd_send_ops(bwd_chunk_id))

        incoming, outgoing = ([_example(each) for each in side] for side in (self.incoming, self.outgoing))
        if not outgoing:
            outgoing = [torch.empty(0)]
        stage = Timed(Stage(), self.stage, count, self.device, tuple(incoming), tuple(outgoing), group=group)
        return stage, timings

    def count_bytes(self, messages: Any) -> Any:
        """Messages that are about to be sent, their bytes counted."""
        self.bytes_sent += sum(each.tensor.numel() * each.tensor.element_size() for each in messages)
        return messages

    def _loss(self, made: Any, sample: Any) -> Any:
        """The loss of a sample's outputs, as its share of the iteration's."""
        names = [name for _, name in self.job.stages.results[self.stage]]
        return self.loss(dict(zip(names, made, strict=True)), int(sample)) / self.job.layout.num_samples


def _example(each: Any) -> Any:
    import torch

    return torch.empty(each.shape, dtype=each.dtype, device="meta", requires_grad=each.has_gradient)

"""All processes of a run on one device, one after the other in this process: each has the device to itself.

First the stages run forwards without gradients, so that what they exchange is there. Then each process runs its passes
in its own order, those of later stages first: what it receives from stages before it was made by the first round, and
gradients by the stages behind it. A pass takes as long, and a process holds as much, as on a device of its own. When
passes would run follows from how long they took (`layout.simulate`): tensors are moved in no time.

A process holds gradients and the optimizer's states from the start, as trainers do.

Source: reconstructed.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Any

from planner.process.errors import UsageError
from planner.training.runtime.job import Job, Report
from planner.training.runtime.launch import RunError, failure_words
from planner.training.runtime.layout import Layout, Pass, Timing
from planner.training.runtime.process import Process
from planner.training.runtime.stages import Tensor
from planner.training.runtime.sums import GradientSum, gradient_sums

#: A message: the tensor's name, the stage that sends it, the process that gets it, the sample, and whether it goes on.
Address = tuple[str, int, int, int, bool]


def expect_emulated(made: Layout, runtime: str) -> None:
    """`UsageError` for what one process cannot do in place of several."""
    if runtime != "own":
        raise UsageError.at("--runtime", runtime, "own, with --backend emulated")
    if made.turns:
        count = made.duties[-1].stage + 1
        raise UsageError.at("PLAN", f"{count} stages on fewer devices", "one of each with --backend emulated")
    if made.scatters:
        raise UsageError.at("PLAN", "sharding 2", "at most 1 with --backend emulated, whose processes exchange nothing")
    for duty in made.duties:
        if "W" in duty.order:
            raise UsageError.at("PLAN", "split backward passes", "whole ones with --backend emulated")
        if duty.degree > 1:
            rule = "1 with --backend emulated: processes of a replica exchange tensors within a pass"
            raise UsageError.at("PLAN", f"tp_degree {duty.degree} of stage {duty.stage}", rule)


def run_emulated(job: Job) -> list[Report]:
    """What every process of a run finds, gradients summed, by the first process of each stage.

    `RunError` if a pass fails.
    """
    mail: dict[Address, Any] = {}
    order = _order(job.layout)
    for rank in order:
        with _named(job, rank):
            Emulated(job, rank, mail).make_tensors()
    reports = []
    for rank in reversed(order):
        with _named(job, rank):
            reports.append(Emulated(job, rank, mail).run())
    total: dict[str, Any] = {}
    for report in reports:
        for name, gradient in report.gradients.items():
            total[name] = gradient if name not in total else total[name].add_(gradient)
    return [
        replace(report, gradients={name: total[name] for name in report.gradients})
        for report in sorted(reports, key=lambda each: each.rank)
    ]


def seconds_of(reports: Sequence[Report]) -> dict[tuple[int, str, int], float]:
    """Seconds of each pass by process, kind and number."""
    return {
        (each.rank, each.kind, each.index): each.end_s - each.start_s for report in reports for each in report.timings
    }


def _order(made: Layout) -> list[int]:
    """The processes, those of stages that make tensors before those that take them."""
    before: dict[int, list[int]] = {duty.stage: [] for duty in made.duties}
    for source, target in made.edges:
        before[target].append(source)
    place = {stage: number for number, stage in enumerate(TopologicalSorter(before).static_order())}
    return sorted(range(len(made.duties)), key=lambda rank: (place[made.duties[rank].stage], rank))


@contextmanager
def _named(job: Job, rank: int) -> Iterator[None]:
    """Errors inside are a `RunError` that names the process."""
    try:
        yield
    except Exception as error:
        raise RunError(f"process {rank} ({job.layout.duties[rank]}) failed: {failure_words(error)}") from error


class Emulated(Process):
    """A replica of a stage; ``mail`` is on the CPU, so that the device has what this process holds alone."""

    def __init__(self, job: Job, rank: int, mail: dict[Address, Any]) -> None:
        super().__init__(job, rank)
        self.mail = mail
        self.leaving: list[tuple[Address, Any]] = []

    def make_tensors(self) -> None:
        """Run all samples forwards, and leave what other stages take."""
        import torch

        with torch.no_grad():
            for sample in self._samples():
                values = self.compute(sample, self._await(sample, True))
                self.kept.clear()
                for each in self.outgoing:
                    for taker in each.targets:
                        self._send(values[each.name], each, self.owners[taker, sample], sample, True)
                self._post()

    def run(self) -> Report:
        """Run the iteration; gradients are those of this process alone."""
        sums = gradient_sums(self.job.stages, self.job.layout)
        states = self._prepare(sums)
        base = self._allocated(is_peak=False)
        timings = self.iterate()
        peak = self._allocated(is_peak=True)
        own = {name: each for name, each in self.parameters.items() if each.requires_grad}
        gradients = {name: each.grad for name, each in own.items()}
        for name, each in own.items():
            self.count_sum(each.grad, sums[name])
            each.grad = None
        held = None if base is None or peak is None else peak - base + self._states_bytes(states)
        sent = self.bytes_sent, self.held_bytes, 0.0, self.gradient_bytes
        return Report(self.rank, self.losses, gradients, *sent, tuple(timings), held)

    def _prepare(self, sums: Mapping[str, GradientSum]) -> list[Any]:
        """Run a sample once, so that kernels are loaded, and make what is there from the start: the states."""
        import torch

        from planner.training.capture.configurations import OPTIMISER

        sample = self._samples()[0]
        self._forward(sample, self._await(sample, True))
        self._backward(sample, self._await(sample, False))
        self.leaving.clear()
        self.losses.clear()
        self.bytes_sent = self.held_bytes = 0
        gc.collect()
        states = []
        for name, each in self.parameters.items():
            each.grad = torch.zeros_like(each) if each.requires_grad else None
            if each.requires_grad and self.device.type == "cuda":
                factor = OPTIMISER.get(each.element_size(), OPTIMISER[2])
                made = self.job.layout
                shares = made.shares_states and len(sums[name].group_of(self.rank)) // made.shard_groups
                size = round(factor * each.numel() * each.element_size() / (shares or 1))
                states.append(torch.empty(size, dtype=torch.uint8, device=self.device))
        return states

    def _states_bytes(self, states: list[Any]) -> int:
        """Bytes of parameters, of their gradients and of the optimizer's states, which are there from the start."""
        trained = [each for each in self.parameters.values() if each.requires_grad]
        sizes = [*self.parameters.values(), *trained, *states]
        return sum(each.numel() * each.element_size() for each in sizes)

    def _allocated(self, *, is_peak: bool) -> int | None:
        """Bytes that PyTorch has allocated on the GPU, now or at most since the call before; ``None`` on a CPU."""
        import torch

        if self.device.type != "cuda":
            return None
        if is_peak:
            return int(torch.cuda.max_memory_allocated(self.device))
        torch.cuda.reset_peak_memory_stats(self.device)
        return int(torch.cuda.memory_allocated(self.device))

    def timing(self, task: Pass, start: float) -> Timing:
        """A pass that ends now; what it sends leaves the device afterwards."""
        found = super().timing(task, start)
        self._post()
        return found

    def _post(self) -> None:
        for address, tensor in self.leaving:
            self.mail[address] = tensor.cpu() if self.device.type != "cpu" else tensor
        self.leaving.clear()

    def _samples(self) -> list[int]:
        return [sample for task in self.duty.passes if task.is_forward for sample in task.samples]

    def _send(self, tensor: Any, each: Tensor, to: int, sample: int, is_forward: bool) -> None:
        self.leaving.append(((each.name, self.stage, to, sample, is_forward), tensor.detach().contiguous()))
        self.bytes_sent += each.num_bytes

    def _receive(self, each: Tensor, stage: int, sample: int, is_forward: bool) -> Any:
        import torch

        data = self.mail[each.name, stage, self.rank, sample, is_forward].to(self.device, copy=True)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # a pass begins when what it waits for is there
        return data.requires_grad_() if is_forward and each.has_gradient else data

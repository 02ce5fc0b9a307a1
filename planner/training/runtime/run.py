"""Run a plan on the processes of this machine and compare it with the model as a whole."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.results.check import check as judge
from planner.results.check import read_plan
from planner.training import scratch
from planner.training.capture.separately import count_gpus, file_of, prepare_torch, refusal
from planner.training.forked import Begin, Deadline, End, Outcome, expect_limit, run_in_fork
from planner.training.runtime.emulated import expect_emulated, run_emulated, seconds_of
from planner.training.runtime.job import Job, Report
from planner.training.runtime.launch import InterruptedRunError, RunError, run_all
from planner.training.runtime.layout import Duty, Layout, Timing, graph_of, layout, orders_of, simulate
from planner.training.runtime.member import run_process
from planner.training.runtime.objective import objective_of
from planner.training.runtime.pipelining import expect_pipelined
from planner.training.runtime.program import Program
from planner.training.runtime.source import program, require_torch
from planner.training.runtime.stages import split
from planner.training.runtime.states import step

_BACKENDS, _RUNTIMES = ("gloo", "nccl", "emulated"), ("own", "pipelining")
#: Processes that a run may have at most.
MOST_PROCESSES = 64
#: Seconds that processes wait for each other beyond the deadline, at which they are ended.
_WAIT_S = 10.0
#: A parameter's gradient counts as at least this part of the largest one: below, it is what rounding left of zero.
_SMALLEST = 1e-3
#: Largest relative errors that --check accepts, by bytes of a number: float64 and others. Sums of eight gradients in
#: bfloat16 (8 bits) are off by 2 % where kernels add in an order that changes from call to call, as seen on a GPU.
_TOLERANCES = {8: 1e-12, 4: 1e-6, 2: 4e-2}


@dataclass(frozen=True)
class Numbers:
    """What the processes of a run found; lists have a number for each, in the order of stages and replicas.

    ``loss_error``, ``gradient_error``: of the whole model, relative (`compare`); ``None`` without a check.
    ``parameters``, ``compared``: parameters of the model with a gradient, and how many of them were compared.
    ``bytes_sent``, ``bytes_planned``: bytes of tensors sent to other stages in the iteration.
    ``held_bytes``, ``held_planned``: bytes held at most for backward passes.
    ``collective_bytes``, ``collective_planned``: bytes sent to sum tensors within tensor-parallel replicas, as rings
    send them.
    ``gradient_bytes``, ``gradient_planned``: bytes sent to sum gradients over replicas and stages, as rings send them.
    ``step_error``, ``state_bytes``, ``state_planned``: of weights after a step of Adam, as the errors above, and bytes
    of its states, where replicas share these.
    ``peak_bytes``, ``memory_planned``: all that a process had on a GPU at most, and the memory by which the plan is
    judged; ``None``: not measured.
    ``seconds``, ``step_s``: from the first pass to the end of the last one, and until gradients are summed; ``None``:
    not measured.
    ``measured``, ``simulated``: the passes as they ran, from 0 on, and as the plan's times have them.
    ``resimulated_s``: seconds of a simulated iteration whose passes take as long as the measured ones of their process
    on average.
    """

    ok: bool
    loss: float
    loss_error: float | None
    gradient_error: float | None
    parameters: int
    compared: int
    bytes_sent: tuple[int, ...]
    bytes_planned: tuple[float, ...]
    held_bytes: tuple[int, ...]
    held_planned: tuple[float, ...]
    collective_bytes: tuple[float, ...]
    collective_planned: tuple[float, ...]
    gradient_bytes: tuple[float, ...]
    gradient_planned: tuple[float, ...]
    peak_bytes: tuple[int, ...] | None
    memory_planned: tuple[float | None, ...]
    device: str
    seconds: float
    tolerance: float | None
    measured: tuple[Timing, ...]
    simulated: tuple[Timing, ...]
    resimulated_s: float
    step_error: float | None
    state_bytes: tuple[int, ...]
    state_planned: tuple[float, ...]
    step_s: float | None


@dataclass(frozen=True)
class Run(Numbers):
    """What a run found, and the layout of its processes; ``printed`` is the end of what the user's function printed."""

    layout: Layout
    printed: str = ""

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner run --json`` prints."""
        return {
            "ok": self.ok,
            "processes": self.layout.num_processes,
            "loss_error": self.loss_error,
            "gradient_error": self.gradient_error,
            "parameters": self.parameters,
            "parameters_compared": self.compared,
            "bytes_sent": list(self.bytes_sent),
            "bytes_planned": list(self.bytes_planned),
            "held_bytes": list(self.held_bytes),
            "held_planned": list(self.held_planned),
            **self._collectives(),
            **self._states(),
            "seconds": self.seconds,
            "step_seconds": self.step_s,
        }

    def _collectives(self) -> dict[str, list[float]]:
        """The bytes of sums within replicas, in plans that have tensor-parallel stages."""
        if all(duty.degree == 1 for duty in self.layout.duties):
            return {}
        return {"collective_bytes": list(self.collective_bytes), "collective_planned": list(self.collective_planned)}

    def _states(self) -> dict[str, Any]:
        """The step, in plans whose replicas share states (none is made of processes one after the other)."""
        if not any(self.state_bytes):
            return {}
        held = {"state_bytes": list(self.state_bytes), "state_planned": list(self.state_planned)}
        return {"step_error": self.step_error, **held}

    def record(self, instance: str) -> dict[str, Any]:
        """The object that ``planner run --out`` writes, for ``planner fidelity``: the run with all its passes."""

        def rows(timings: Sequence[Timing]) -> list[list[Any]]:
            return [[t.rank, t.kind, t.index, t.start_s, t.end_s] for t in timings]

        memory: dict[str, Any] = {}
        if self.peak_bytes is not None and None not in self.memory_planned:
            memory = {"peak_bytes": list(self.peak_bytes), "memory_planned": list(self.memory_planned)}
        processes = [
            {
                "stage": duty.stage,
                "replica": duty.replica,
                **({"process": self.layout.rank_of(number)} if self.layout.turns else {}),
                **({"shard": duty.shard} if duty.degree > 1 else {}),
                **({} if duty.device is None else {"device": duty.device}),
            }
            for number, duty in enumerate(self.layout.duties)
        ]
        sums = {"gradient_bytes": list(self.gradient_bytes), "gradient_planned": list(self.gradient_planned)}
        passes = {"measured": rows(self.measured), "simulated": rows(self.simulated)}
        head = {"schema_version": 1, "instance": instance, "device": self.device, "rows": processes}
        return {**head, **self.to_json(), **memory, **sums, **passes, "resimulated_s": self.resimulated_s}


def run_plan(
    plan: Mapping[str, Any],
    instance: Any,
    model: str,
    *,
    backend: str = "gloo",
    check: bool = False,
    time_limit: float = 600.0,
    runtime: str = "own",
    orders: Sequence[str] | None = None,
    where: str = "plan",
) -> Run:
    """Run one iteration of a plan in processes of this machine.

    The function of the model is called in a fork of this process, which leaves nothing behind.

    ``plan``: in its JSON form, or a result object that holds it; ``where`` names it in errors.
    ``model``: ``FILE.py:function``, which returns the model and the inputs of one call of it.
    ``backend``, ``check``, ``runtime``: as of `run_program`; ``emulated``: all processes one after the other on the
    model's device (`emulated`).
    ``time_limit``: seconds for all of it, from the call of the function on.
    ``orders``: as of `layout.layout`.
    `InstanceError`, `UsageError` if the plan is none of this instance or cannot be run here, or the model is not the
    one of the instance.
    `RunError` if a process dies, fails or is late.
    """
    expect_limit(time_limit)
    verdict = judge(instance, plan, where=where)
    if not verdict.feasible:
        broken = verdict.violations[0]
        raise UsageError.at(where, f"plan breaking {broken.rule} ({broken.message})", f"a plan of {instance.name}")
    content = plan["plan"] if "plan" in plan and "status" in plan else plan
    made = layout(instance, family_of(instance).plan_from_json(instance, content), verdict.problem, orders)
    require_torch()
    expect_places(made.num_processes, backend, runtime)
    if backend == "emulated":
        expect_emulated(made, runtime)
    degrees = {duty.stage: duty.degree for duty in made.duties}
    by_node = {node: degrees[stage] for node, stage in made.stage_of.items()}

    def work(begin: Begin) -> dict[str, Any]:
        import torch

        torch.set_num_threads(1)  # a pool of threads does not survive a fork
        found = program(model, graph_of(instance), made.num_samples, by_node, made.sequences)
        try:
            numbers = run_program(found, made, folder, begin, backend, check, deadline, runtime)
        except RunError as error:
            return {"failed": str(error)}
        return {"found": asdict(numbers)}

    with scratch.folder() as folder, prepare_torch(folder):
        deadline = Deadline.after(time_limit)
        outcome = run_in_fork(work, model, deadline, file_of(model))
    return _run(outcome, made, model)


def _run(outcome: Outcome, made: Layout, model: str) -> Run:
    """What a process that ran the user's code says, by its schema."""
    from pydantic import TypeAdapter, ValidationError

    if outcome.end is End.INTERRUPTED:
        raise InterruptedRunError
    if outcome.end is not End.RETURNED:
        raise RunError(outcome.words) if outcome.has_begun else refusal(outcome)
    said = outcome.value
    if isinstance(said, dict) and isinstance(said.get("failed"), str):
        raise RunError(said["failed"])
    wrong = (
        f"{model}: reply of its process is no run of {made.num_processes} processes; expected a function that returns"
    )
    try:
        found = Run(**vars(TypeAdapter(Numbers).validate_python(said["found"])), layout=made, printed=outcome.printed)
    except (ValidationError, TypeError, KeyError):
        raise UsageError(wrong) from None
    lists = (found.bytes_sent, found.held_bytes, found.collective_bytes, found.gradient_bytes, found.state_bytes)
    if any(len(each) != len(made.duties) for each in lists):
        raise UsageError(wrong)
    return found


def read_alternative(file: str, number: int) -> dict[str, Any]:
    """A result of ``planner alternatives`` with the plan of this number, from 1 on, as its own; `UsageError`."""
    content: Any = read_plan(file)
    found = content.get("alternatives")
    if not isinstance(found, list) or not 1 <= number <= len(found):
        is_list = isinstance(found, list)
        rule = f"at most {len(found)}, the plans of {file}" if is_list else f"none: it has no alternatives in {file}"
        raise UsageError.at("--alternative", number, rule)
    return {**content, "plan": found[number - 1]["plan"]}


def read_orders(file: str) -> list[str]:
    """The order of passes of each stage in the file of a plan of micro-batch scheduling; `InstanceError`."""
    from formulations.microbatch_schedule.definition.plan import plan_from_json

    content: Any = read_plan(file)
    held = content["plan"] if "plan" in content and "status" in content else content
    return orders_of(plan_from_json(None, held, file))


def expect_places(processes: int, backend: str, runtime: str) -> None:
    """`UsageError` if there is no such backend or runtime, or no place on this machine for so many processes."""
    if backend not in _BACKENDS:
        raise UsageError.at("--backend", backend, f"one of {', '.join(_BACKENDS)}")
    if runtime not in _RUNTIMES:
        raise UsageError.at("--runtime", runtime, f"one of {', '.join(_RUNTIMES)}")
    if processes > MOST_PROCESSES:
        raise UsageError.at("PLAN", f"{processes} processes", f"at most {MOST_PROCESSES}")
    if backend == "nccl" and count_gpus() < processes:
        rule = f"gloo: the plan has {processes} processes, and there are {count_gpus()} GPUs"
        raise UsageError.at("--backend", backend, rule)


def run_program(
    program: Program,
    made: Layout,
    folder: str,
    begin: Begin,
    backend: str,
    check: bool,
    deadline: Deadline,
    runtime: str,
) -> Numbers:
    """Run one iteration of a layout of a program in processes of this machine.

    ``folder``: where processes find each other.
    ``begin``: called before the first process starts; from then on the deadline is kept here.
    ``check``: also run the whole model, in a process of its own, and compare loss and gradients.
    ``deadline``: of all processes.
    ``runtime``: ``own``, or ``pipelining``: torch.distributed.pipelining, which refuses most plans.
    `UsageError` if the plan does not fit the model or the runtime, or its processes would wait for each other.
    `RunError` if a process dies, fails or is late.
    """
    if any(duty.degree > 1 for duty in made.duties):
        import planner.training.runtime.sharded  # noqa: F401 - before processes are forked: each would import DTensor

    simulated = simulate(made)
    stages = split(program, made)
    args, kwargs = program.samples[0]
    objective = objective_of(program.whole(*args, **kwargs))
    file, is_pipelined = os.path.join(folder, "store"), runtime == "pipelining"
    job = Job(program, made, stages, objective, file, backend, deadline.left_s() + _WAIT_S, is_pipelined)
    if job.is_pipelined:
        expect_pipelined(job)
    own = [[str(made.duties[number]) for number in made.duties_of(rank)] for rank in range(made.num_processes)]
    names = [f"process {rank} ({'; '.join(duties)})" for rank, duties in enumerate(own)]
    begin()
    if backend == "emulated":
        reports = run_emulated(job)
        return _judge(job, reports, _whole(job) if check else None, simulated)
    came = run_all(lambda rank: run_process(job, rank), names, deadline)
    reports = sorted((report for part in came for report in part), key=lambda each: each.rank)
    whole = run_all(lambda _: _whole(job), ["the whole model"], deadline)[0] if check else None
    return _judge(job, reports, whole, simulated)


def _whole(job: Job) -> tuple[float, Mapping[str, Any], Mapping[str, Any]]:
    """Loss and gradients of the model that is not split, over all samples, and its weights after a step."""
    import torch
    from torch.utils import _pytree

    torch.set_num_threads(1)
    model, total = job.program.model, 0.0
    model.zero_grad(set_to_none=True)
    for sample, (args, kwargs) in enumerate(job.program.samples):
        loss = (
            job.objective.of(_pytree.tree_leaves(job.program.whole(*args, **kwargs)), sample) / job.layout.num_samples
        )
        loss.backward()
        total += float(loss.detach())
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    gradients, weights = {name: each.grad for name, each in trained.items()}, {}
    if job.layout.shares_states and job.backend != "emulated":  # it steps this process's own model
        for name, each in trained.items():
            weights[name] = each.detach().clone()
            step(weights[name], torch.zeros_like(each) if each.grad is None else each.grad)
    return total, gradients, weights


def _judge(
    job: Job,
    reports: Sequence[Report],
    whole: tuple[float, Mapping[str, Any], Mapping[str, Any]] | None,
    simulated: Sequence[Timing],
) -> Numbers:
    made = job.layout
    loss = math.fsum(value for report in reports for value in report.losses.values()) / made.num_samples
    names = [name for name, each in job.program.model.named_parameters() if each.requires_grad]
    loss_error = gradient_error = step_error = tolerance = None
    compared, ok = 0, True
    if whole is not None:
        loss_error = abs(loss - whole[0]) / abs(whole[0]) if whole[0] else abs(loss)
        gradient_error, compared = compare([report.gradients for report in reports], whole[1])
        sizes = [each.element_size() for each in job.program.model.parameters() if each.requires_grad]
        tolerance = _TOLERANCES.get(min(sizes), _TOLERANCES[2])
        ok = max(loss_error, gradient_error) <= tolerance and compared == len(names)
        if whole[2]:
            step_error, stepped = compare([report.weights for report in reports], whole[2])
            ok = ok and step_error <= tolerance and stepped == len(names)
    measured = simulate(made, seconds_of(reports)) if job.backend == "emulated" else _from_first(reports)
    peaks = tuple(report.peak_bytes for report in reports if report.peak_bytes is not None)
    return Numbers(
        ok,
        loss,
        loss_error,
        gradient_error,
        len(names),
        compared,
        tuple(report.bytes_sent for report in reports),
        tuple(duty.bytes_planned for duty in made.duties),
        tuple(report.held_bytes for report in reports),
        tuple(duty.held_planned for duty in made.duties),
        tuple(report.collective_bytes for report in reports),
        tuple(_collective_planned(job, duty) for duty in made.duties),
        tuple(report.gradient_bytes for report in reports),
        tuple(duty.gradient_planned for duty in made.duties),
        peaks if len(peaks) == len(reports) else None,
        tuple(duty.memory_planned for duty in made.duties),
        _name_of(job),
        max(each.end_s for each in measured),
        tolerance,
        tuple(sorted(measured, key=lambda each: (each.start_s, each.rank))),
        tuple(simulated),
        _simulate_again(made, measured),
        step_error,
        tuple(report.state_bytes for report in reports),
        tuple(duty.states_planned for duty in made.duties),
        _step_s(reports),
    )


def _step_s(reports: Sequence[Report]) -> float | None:
    """Seconds from the first pass until the last process has summed its gradients; ``None``: not measured."""
    ends = [each.end_s for each in reports if each.end_s is not None]
    start = min(each.start_s for report in reports for each in report.timings)
    return max(ends) - start if len(ends) == len(reports) else None


def _from_first(reports: Sequence[Report]) -> list[Timing]:
    """The passes as they ran, the first of them at 0."""
    start = min(each.start_s for report in reports for each in report.timings)
    return [
        Timing(each.rank, each.kind, each.index, each.start_s - start, each.end_s - start)
        for report in reports
        for each in report.timings
    ]


def _name_of(job: Job) -> str:
    """What the processes run on: the name of the GPU, or ``cpu``."""
    import torch

    device = job.device_of(0)
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else str(device.type)


def _collective_planned(job: Job, duty: Duty) -> float:
    """Bytes that a process sends by the formula of TMPCs with tensor parallelism, in an iteration."""
    samples = sum(len(task.samples) for task in duty.passes if task.is_forward)
    return samples * math.fsum(block.reduced_bytes() for block in job.stages.blocks[duty.stage])


def _simulate_again(made: Layout, measured: Sequence[Timing]) -> float:
    duties = []
    for rank, duty in enumerate(made.duties):
        seconds = {
            kind: [each.end_s - each.start_s for each in measured if each.rank == rank and each.kind == kind]
            for kind in "FBW"
        }
        forward, backward, weights = (math.fsum(each) / max(1, len(each)) for each in seconds.values())
        duties.append(replace(duty, forward_s=forward, backward_s=backward, weight_s=weights))
    return max(each.end_s for each in simulate(replace(made, duties=tuple(duties))))


def compare(found: Sequence[Mapping[str, Any]], whole: Mapping[str, Any]) -> tuple[float, int]:
    """The largest relative error of a parameter's gradient, and how many parameters were compared.

    The error of a parameter is the largest difference of an element over the largest element of its gradient, but over
    no less than a thousandth of the largest of all: gradients that would be zero in exact numbers, such as those of a
    bias before a softmax, consist of rounding alone. ``found`` are the gradients of stages, each of which may have its
    own copy of a parameter; a parameter is not compared if no stage has it and the whole has a gradient for it. NaN
    counts as infinite.
    """
    largest = max((float(each.abs().max()) for each in whole.values() if each is not None), default=0.0)
    worst, compared = 0.0, 0
    for name, expected in whole.items():
        copies = [gradients[name] for gradients in found if gradients.get(name) is not None]
        if expected is None:
            errors = [float(copy.abs().max()) for copy in copies]
            scale = _SMALLEST * largest
        else:
            errors = [float((copy - expected).abs().max()) for copy in copies]
            scale = max(float(expected.abs().max()), _SMALLEST * largest)
        compared += bool(copies) or expected is None
        for error in errors:
            relative = error / scale if scale else error
            worst = max(worst, relative if math.isfinite(relative) else math.inf)
    return worst, compared

"""The commands that make instances of models of PyTorch: ``import``, ``profile`` and ``calibrate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from instances.problems.stage_partitioning import StageInstance
from planner.cli.common import NOTES, VIEW, Notes, Out, Search, View
from planner.cli.declared import argument, flag, option
from planner.cli.for_trainer import Trainer, question_of
from planner.cli.outputs import Outputs
from planner.cli.solve import solve_command
from planner.files.destinations import refuse_outputs, refuse_overwriting
from planner.files.load import family_of
from planner.files.write import as_json, write_atomically
from planner.process.errors import UsageError

if TYPE_CHECKING:
    from planner.training.capture.separately import CapturedInstance

#: Seconds that a model may take where no limit is given.
LONGEST_S = 3600.0
Devices = Annotated[int, option("K", "how many")]
Granularity = Annotated[str, option("block|op", "a node for each")]
TracingLimit = Annotated[float, option("SECONDS", "wall time of the model's process")]


def import_command(
    kind: Annotated[str, argument("torch|hf", "a function of yours, or a model of transformers")],
    model: Annotated[str, argument("MODEL", "FILE.py:FUNCTION; or a name, or a config.json")],
    problem: Annotated[str, option("NAME", "or operator_partitioning, stage_graph")] = "stage_partitioning",
    granularity: Granularity = "block",
    hardware: Annotated[str, option("NAME", "such as a100-80g, v100, or rates.json")] = "h100",
    devices: Devices = 8,
    microbatches: Annotated[int | None, option("N", "of a batch; default 128")] = None,
    batch: Annotated[str | None, option("B", "instead: samples, or 4194304tokens")] = None,
    microbatch: Annotated[str | None, option("B,...", "hf: samples of one; default 1")] = None,
    seq_len: Annotated[int | None, option("S", "hf: tokens; default: up to 4096")] = None,
    dtype: Annotated[str | None, option("NAME", "hf: bf16 (default), fp8, fp16, fp32/64")] = None,
    tp: Annotated[str | None, option("T,...", "degrees; default: powers of two")] = None,
    no_recompute: Annotated[bool, flag("--no-recompute", "offer no recomputation")] = False,
    selective: Annotated[bool, flag("--selective", "offer that of attention's core, MLPs")] = False,
    sequence_parallel: Annotated[bool, flag("--sequence-parallel", "offer it where layers are split")] = False,
    splits: Annotated[str, option("NAME", "found: by search")] = "by-hand",
    zero: Annotated[str | None, option("1,2,3", "offer states sharded by T devices")] = None,
    efficiency: Annotated[float, option("E", "share of the peak; a guess")] = 0.5,
    memory_efficiency: Annotated[float, option("E", "the same of the memory")] = 0.75,
    weight_versions: Annotated[int, option("V", "2: PipeDream-2BW")] = 1,
    trainer: Trainer = None,
    ep: Annotated[str | None, option("1,2,...", "with --for: degrees of experts")] = None,
    cp: Annotated[str | None, option("1,2,...", "with --for: of contexts")] = None,
    time_limit: TracingLimit = LONGEST_S,
    out: Out = None,
    view: Notes = NOTES,
) -> None:
    """Make an instance of a PyTorch model: traced without weights; operations, memory and transfers counted."""
    shared: dict[str, Any] = {name: given for name, given in (("ep", ep), ("cp", cp)) if given is not None}
    for name, given in shared.items():
        _degrees(f"--{name}", given)
        if trainer is None:
            raise UsageError.at(f"--{name}", given, "none without --for: solve --for takes it")
    if trainer is not None:
        question_of(trainer, {})
        if out is None or problem != "stage_partitioning":
            rule = "--out FILE, which its export reads, and --problem stage_partitioning"
            raise UsageError.at("--for", trainer, rule)
    from planner.analysis.sweep import SIZE, parse_counts
    from planner.display.models import show_brought
    from planner.training.capture.choices import Choices
    from planner.training.capture.import_model import KINDS
    from planner.training.capture.separately import bring_separately

    if kind not in KINDS:
        raise UsageError.at("KIND", kind, " or ".join(KINDS))
    if splits not in ("by-hand", "found"):
        raise UsageError.at("--splits", splits, "by-hand or found")
    _expect_counts({"--devices": devices, "--microbatches": microbatches, "--seq-len": seq_len})
    sizes = parse_counts("--microbatch", "1" if microbatch is None else microbatch)
    if len(sizes) > 1 and (batch is None or SIZE not in (out or "") or (view.json and trainer is None)):
        raise UsageError.at("--microbatch", microbatch, f"one size, or --batch and --out x-{SIZE}.json, without --json")
    if out is not None:
        refuse_overwriting(out, model.rpartition(":")[0] or model)
    elif view.json:
        raise UsageError("--json shows the figures of the model; expected --out FILE for the instance as well")
    choices = Choices(
        () if tp is None else _degrees("--tp", tp), not no_recompute, sequence_parallel,
        () if zero is None else _degrees("--zero", zero), efficiency, memory_efficiency,
        weight_versions=weight_versions, found_splits=splits == "found", selective=selective,
    )  # fmt: skip
    for size in sizes:
        found = bring_separately(
            kind, model, time_limit=time_limit, problem=problem, granularity=granularity, hardware=hardware,
            devices=devices, microbatches=microbatches, batch=batch, microbatch=None if microbatch is None else size,
            sequence=seq_len, dtype=dtype, choices=choices,
        )  # fmt: skip
        _note(found, view)
        text = as_json(family_of(found.instance).to_json(found.instance))
        if out is None:
            print(text)
            return
        file = out.replace(SIZE, str(size)) if len(sizes) > 1 else out
        write_atomically(Path(file), text + "\n")
        if trainer is None or not view.json:
            view.show({"problem": problem, **found.figures, "out": file}, show_brought)
    if trainer is not None and isinstance(found.instance, StageInstance):
        if len(sizes) > 1 and out is not None:
            file = _fastest(out, sizes, found.instance.num_microbatches * sizes[-1], trainer, view, shared)
        asked = question_of(trainer, shared)
        solve_command(file, trainer=trainer, outputs=Outputs(json=view.json, quiet=view.quiet), **asked)


def _fastest(out: str, sizes: Sequence[int], samples: int, trainer: str, view: Notes, shared: Mapping[str, Any]) -> str:
    """The file of the micro-batches with which a batch takes a trainer least; shows what it takes with each."""
    from planner.analysis.sweep import SIZE, sweep, time_per_sequence
    from planner.display.nearby import show_sweep

    _, found, rows = sweep(out, samples, (1,), sizes, overrides=question_of(trainer, shared), limits=Search().limits())
    if not view.json:
        show_sweep(rows, found.flat.time_unit)
    return out.replace(SIZE, str(min(rows, key=time_per_sequence).microbatch_size))


def profile_command(
    model: Annotated[str, argument("FILE.py:FUNCTION", "makes a model and its inputs, with data")],
    memory: Annotated[str, option("SIZE", "of a device")] = "16GB",
    bandwidth: Annotated[str, option("SIZE/S", "between devices")] = "10GB/s",
    devices: Devices = 8,
    microbatches: Annotated[int, option("N", "of a batch")] = 128,
    granularity: Granularity = "block",
    repeats: Annotated[int, option("R", "measured runs of each node")] = 5,
    warmup: Annotated[int, option("W", "runs before them")] = 1,
    time_limit: TracingLimit = LONGEST_S,
    out: Annotated[str | None, option("FILE", "write the instance")] = None,
    table: Annotated[str | None, option("FILE", "write forward passes, for planner calibrate", "--csv")] = None,
    view: Notes = NOTES,
) -> None:
    """Measure the blocks of a PyTorch model, forward and backward, on this machine, and make an instance of them."""
    from planner.display.models import show_profile
    from planner.training.capture.separately import measure_separately

    _expect_counts({"--devices": devices, "--microbatches": microbatches, "--repeats": repeats})
    if not 0 <= warmup <= 1000:
        raise UsageError.at("--warmup", warmup, "an integer from 0 to 1000")
    refuse_outputs({"--out": out, "--csv": table}, model.rpartition(":")[0])
    found = measure_separately(
        model, time_limit=time_limit, memory=memory, bandwidth=bandwidth, devices=devices, microbatches=microbatches,
        granularity=granularity, repeats=repeats, warmup=warmup,
    )  # fmt: skip
    _note(found, view)
    if out is not None:
        write_atomically(Path(out), as_json(family_of(found.instance).to_json(found.instance)) + "\n")
    if table is not None:
        write_atomically(Path(table), found.table, "--csv")
    view.show({**found.figures, "out": out}, show_profile)


def calibrate_command(
    measurements: Annotated[str, argument("MEASUREMENTS.csv", "forward passes, collectives, both at once")],
    hardware: Annotated[str | None, option("NAME", "show shares of its peaks")] = None,
    dtype: Annotated[str, option("bf16|fp16|fp32", "of the products")] = "bf16",
    out: Annotated[str | None, option("FILE.json", "with --hardware: for planner import --hardware FILE")] = None,
    view: View = VIEW,
) -> None:
    """Fit rates of products, memory and links to measurements, with intervals and errors of the fit."""
    from planner.display.models import show_fit
    from planner.training.capture.device_rates import calibrate, rates_in
    from planner.training.capture.import_model import shares_of

    found = calibrate(measurements)
    names, shown = ("measurements", "median_error", "worst_error", "worst"), shares_of(found, hardware, dtype)
    if out is not None:
        if hardware is None:
            raise UsageError.at("--out", out, "--hardware NAME with it, whose other numbers it takes")
        refuse_overwriting(out, measurements)
        said = {"hardware": hardware, "dtype": dtype, "source": f"{found.measurements} measurements in {measurements}"}
        write_atomically(Path(out), as_json({**said, "rates": {name: shown[name] for name in rates_in(found)}}) + "\n")
    view.show({**{name: getattr(found, name) for name in names}, **shown}, show_fit)


def _expect_counts(counts: Mapping[str, int | None]) -> None:
    """Counts by their options; typer's own ranges would take the room that the help has for a screen."""
    for name, count in counts.items():
        if count is not None and not 1 <= count <= 10**6:
            raise UsageError.at(name, count, "an integer from 1 to 1000000")


def _note(found: CapturedInstance, view: Notes) -> None:
    """Show on standard error what the model printed, and what may be wrong with the instance."""
    lines = [*found.printed.splitlines()]
    lines += [f"warning: {each}" for each in found.warnings] + [f"note: {each}" for each in found.notes]
    for line in lines:
        view.note(line)


def _degrees(option: str, given: str) -> tuple[int, ...]:
    from instances.parameters import parse_degrees

    try:
        return parse_degrees(given)
    except ValueError as error:
        raise UsageError.at(option, given, str(error)) from None

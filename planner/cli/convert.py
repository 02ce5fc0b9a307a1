"""The command that makes instances of what other tools have measured: ``convert``."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from planner.cli.capture import Devices
from planner.cli.common import Out
from planner.cli.declared import argument, flag, option
from planner.process.errors import UsageError

_KINDS = ("galvatron", "megatron")
#: Whose files an instance can be written as: the module that writes them, and of which problem.
_TO = {
    "iopddl": ("instances.readers.iopddl_json", "operator_strategies"),
    "pipedream": ("instances.readers.pipedream_profile", "operator_partitioning"),
    "dnn-partitioning": ("instances.readers.placement_json", "operator_partitioning"),
    "amp": ("planner.training.record", "training_strategy"),
}
_Size = Annotated[str | None, option("SIZE", "megatron: of a layer")]


def convert_command(
    kind: Annotated[str, argument("|".join(_KINDS), "what measured, or INSTANCE")],
    profile: Annotated[str | None, argument("FILE", "of times, or a log")] = None,
    to: Annotated[str | None, option("FORMAT", "write INSTANCE so")] = None,
    layers: Annotated[str | None, option("L,...", "of each type, as 24 or 12,12")] = None,
    memory_profile: Annotated[str | None, option("FILE", "galvatron's second file")] = None,
    devices: Devices = 8,
    memory: Annotated[str, option("SIZE", "of a device")] = "80GB",
    bandwidth: Annotated[str, option("SIZE/S", "of a link")] = "50GB/s",
    microbatches: Annotated[int, option("N", "megatron: of a replica", show_default=False)] = 128,
    microbatch: Annotated[int, option("B", "samples of one")] = 1,
    seq_len: Annotated[int | None, option("S", "tokens, if several")] = None,
    hidden_size: Annotated[int | None, option("H", "numbers of a token")] = None,
    dtype: Annotated[str, option("bf16|fp16|fp32", "what is sent")] = "bf16",
    tp: Annotated[str, option("T,...", "megatron: the run's")] = "1",
    backward: Annotated[float, option("F", "forwards")] = 2.0,
    sequence_parallel: Annotated[bool, flag("--sequence-parallel", "take figures for that")] = False,
    pp: Annotated[int | None, option("P", "megatron: stages of the run")] = None,
    weight_bytes: _Size = None,
    activation_bytes: _Size = None,
    output_bytes: _Size = None,
    memory_scheme: Annotated[str, option("NAME", "megatron")] = "mixed",
    out: Out = None,
) -> None:
    """Make an instance of what Galvatron or Megatron-LM measured, or write one."""
    from instances.memory_schemes import SCHEME, SCHEMES
    from instances.parameters import parse_count, parse_degrees
    from instances.problems.stage_partitioning import StageInstance, check
    from instances.readers import galvatron_profile, megatron_timers
    from instances.units import parse_bandwidth, parse_bytes
    from planner.cli.common import deliver
    from planner.files.destinations import refuse_outputs
    from planner.files.load import family_of, read_content, validate
    from planner.files.write import as_json

    if to is not None:
        _write(kind, to, out)
        return
    if kind not in _KINDS:
        raise UsageError.unknown("KIND", kind, _KINDS)
    if profile is None:
        raise UsageError("FILE is missing; expected what was measured")
    if layers is None:
        raise UsageError("--layers is missing; expected how many there are")
    refuse_outputs({"--out": out}, profile)
    degrees = _read("--tp", tp, parse_degrees)
    counts = tuple(_read("--layers", each, parse_count) for each in layers.split(","))
    rate = _read("--bandwidth", bandwidth, parse_bandwidth)
    content = read_content(Path(profile))
    options: dict[str, Any] = {"profile": kind}
    if kind == "galvatron":
        options |= {"microbatch": microbatch, "dtype": dtype}
        if memory_profile is None or hidden_size is None:
            missing = "--memory-profile" if memory_profile is None else "--hidden-size"
            raise UsageError(f"{missing} is missing; a profile of times does not have it")
        width = {"bf16": 2, "fp16": 2, "fp32": 4}.get(dtype)
        if width is None or not 0 <= backward <= 100:
            raise UsageError("--dtype is bf16, fp16 or fp32; --backward a number from 0 to 100")
        run = galvatron_profile.GalvatronRun(
            layers=counts,
            degrees=degrees,
            microbatch=_read("--microbatch", microbatch, parse_count),
            hidden=_read("--hidden-size", hidden_size, parse_count),
            number_bytes=width,
            bandwidth=rate,
            backward=backward,
            sequence=seq_len,
            sequence_parallel=sequence_parallel,
        )
        other = read_content(Path(memory_profile))
        chain, edges = galvatron_profile.read(content, profile, other, memory_profile, run)
    else:
        sizes = {"--weight-bytes": weight_bytes, "--activation-bytes": activation_bytes, "--output-bytes": output_bytes}
        for option, value in {**sizes, "--pp": pp}.items():
            if value is None:
                raise UsageError(f"{option} is missing; timers do not have it")
        if len(degrees) != 1 or len(counts) != 1 or memory_scheme not in SCHEMES:
            rule = f"one --tp, one --layers, and of --memory-scheme one of {', '.join(SCHEMES)}"
            raise UsageError(f"megatron takes the numbers of its run; expected {rule}")
        if not isinstance(content, str):
            raise UsageError.at("FILE", profile, "a training log")
        weights, activations, sent = (_read(option, size, parse_bytes) for option, size in sizes.items())
        static, in_flight = SCHEMES[memory_scheme].of_weights(weights)
        timers = megatron_timers.MegatronRun(
            layers=counts[0],
            stages=_read("--pp", pp, parse_count),
            tp_degree=degrees[0],
            microbatches=_read("--microbatches", microbatches, parse_count),
            weight_bytes=weights,
            activation_bytes=activations + in_flight,
            static_bytes=static,
            output_bytes=sent,
        )
        chain, edges, replicas = megatron_timers.read(content, profile, timers)
        microbatches *= replicas
        options[SCHEME] = memory_scheme
    size = _read("--memory", memory, parse_bytes)
    instance = StageInstance(Path(profile).stem, chain, edges, devices, size, rate, microbatches, options=options)
    check(instance, profile)
    validate(instance)
    deliver(as_json(family_of(instance).to_json(instance)) + "\n", out)


def _write(source: str, to: str, out: str | None) -> None:
    """An instance in the form of another tool's files."""
    from planner.cli.common import deliver
    from planner.files.destinations import refuse_outputs
    from planner.files.load import family_of, load
    from planner.files.write import as_json

    if to not in _TO:
        raise UsageError.unknown("--to", to, tuple(_TO))
    module, expected = _TO[to]
    instance = load(source, **({"problem": expected, "linearize": "id"} if to == "amp" else {}))
    if family_of(instance).name != expected:
        raise UsageError.at("INSTANCE", family_of(instance).name, f"an instance of {expected} for --to {to}")
    refuse_outputs({"--out": out}, source)
    content = import_module(module).write(instance)
    deliver(content if isinstance(content, str) else as_json(content) + "\n", out)


def _read(option: str, value: Any, parse: Callable[[Any], Any]) -> Any:
    """A value of an option; `UsageError` with its rule."""
    try:
        return parse(value)
    except ValueError as rule:
        raise UsageError.at(option, value, str(rule)) from None

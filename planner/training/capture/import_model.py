"""From the name of a model to an instance: `bring`, which ``planner import`` calls in a process of its own."""

import csv
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from instances.errors import closest
from instances.generators.hardware import DTYPES, HARDWARE, Hardware
from instances.generators.transformer import VANILLA
from instances.problems.stage_partitioning import StageInstance
from instances.problems.training_strategy import INNER, MACHINE, OUTER
from instances.units import parse_bandwidth, parse_bytes
from planner.files.load import validate
from planner.process.errors import UsageError
from planner.process.target import words
from planner.training.capture.captured import Captured
from planner.training.capture.choices import LINK_EFFICIENCY, Choices, Work, by_node
from planner.training.capture.device_rates import Fit, rates_in, read_rates
from planner.training.capture.models import Example, example_in, expect_packages
from planner.types import Instance

KINDS = ("torch", "hf")
#: Instances that a captured model can become.
PROBLEMS = ("stage_partitioning", "operator_partitioning", "stage_graph")


@dataclass(frozen=True)
class Brought:
    """An instance, and the captured model that it was made of; ``beside``: what found splits say of the model."""

    instance: Instance
    captured: Captured
    work: Work
    hardware: Hardware
    seconds: float
    degrees: tuple[int, ...] = ()
    beside: tuple[str, ...] = ()

    def computed_whole(self) -> list[str]:
        """For each tensor-parallel degree the nodes whose products each device computes whole, in a sentence."""
        from planner.training.capture.sharding import computed_whole

        found = []
        for degree in self.degrees:
            nodes = computed_whole(self.captured, degree) if degree > 1 else []
            if nodes:
                what = (
                    f"{len(nodes)} nodes with matrix products, the first {nodes[0].name}"
                    if nodes[1:]
                    else nodes[0].name
                )
                found.append(f"at degree {degree} each device computes the whole of {what}: no equal shares are known")
        return found

    def lost_by_hand(self) -> list[str]:
        """For each degree what columns and rows lose against what was found, of every node, in a sentence."""
        found = []
        layers = self.instance.layers if isinstance(self.instance, StageInstance) else ()
        for degree in self.degrees:
            losses = []
            for layer in layers:
                times = {each.id: each.time for each in layer.tmpcs[degree]}
                if times.get("split 1", 0) > 0:
                    losses.append((layer.name, times[VANILLA] / times["split 1"] - 1))
            if losses:
                longer = f"at degree {degree} columns and rows take longer than the fastest split found"
                found.append(f"{longer}, by {by_node(losses)}")
        return [*found, *self.beside]

    def to_json(self) -> dict[str, Any]:
        """The figures of the model, in JSON types."""
        captured = self.captured
        return {
            "instance": captured.name,
            "nodes": len(captured.nodes),
            "edges": len(captured.edges),
            "downsets": captured.downsets,
            "parameters": captured.parameter_bytes() / DTYPES[self.work.dtype],
            "parameter_bytes": captured.parameter_bytes(),
            "forward_flops": captured.flops(),
            "saved_bytes": captured.saved_bytes(),
            "tied": {name: list(nodes) for name, nodes in captured.tied.items()},
            "replicated_ops": len(captured.replicated),
            "hardware": self.hardware.name,
            "source": self.hardware.source,
            "microbatch": self.work.microbatch,
            "dtype": self.work.dtype,
            "warnings": list(captured.warnings),
            "seconds": self.seconds,
        }


def bring(
    kind: str,
    model: str,
    *,
    problem: str = "stage_partitioning",
    granularity: str = "block",
    hardware: str = "h100",
    devices: int = 8,
    microbatches: int | None = None,
    batch: str | None = None,
    microbatch: int | None = None,
    sequence: int | None = None,
    dtype: str | None = None,
    choices: Choices | None = None,
) -> Brought:
    """Capture a model and make an instance of it; the user's function is called in this process.

    ``kind``, ``model``: ``torch`` and ``FILE.py:FUNCTION`` (`models.example_in`), or ``hf`` and a name of the catalogue
    or a file with a configuration (`hf.configuration`).
    ``problem``: one of `PROBLEMS`.
    ``granularity``: ``block`` or ``op``.
    ``hardware``, ``devices``: a name of `instances.generators.hardware.HARDWARE`, or a file of measured rates, and how
    many there are.
    ``microbatches``: of a batch, N; 128 by default.
    ``batch``: instead of it the batch in samples, such as ``1024``, or in tokens, such as ``4194304tokens``.
    ``microbatch``, ``sequence``, ``dtype``: of ``hf``: samples in a micro-batch (1), tokens of a sequence, data type
    (bf16). Of ``torch`` they are those of the function's model and inputs.
    ``choices``: what is offered for each node, and the rates that are reached.
    `UsageError` if a package is missing, a name is unknown, or the model cannot be made or traced.
    """
    started = time.perf_counter()
    device, measured = _hardware(hardware)
    _expect("problem", problem, PROBLEMS)
    _expect("granularity", granularity, ("block", "op"))
    expect_packages("torch", *(["transformers"] if kind == "hf" else []), for_what="planner import")
    example, facts = _example(kind, model, microbatch, sequence, dtype)
    work = Work(facts["microbatch"], facts["dtype"], _microbatches(microbatches, batch, facts))
    if work.dtype not in device.peak_flop_per_s:
        option, given = ("--dtype", work.dtype) if kind == "hf" else (model, f"parameters of {work.dtype}")
        known = [each for each in device.peak_flop_per_s if kind == "hf" or each != "fp8"]  # no parameters have it
        raise UsageError.at(option, given, f"one of {', '.join(known)} on {device.name}")
    choices = choices or Choices()
    usual = Choices()
    own: dict[str, Any] = {x: each for x, each in measured.items() if getattr(choices, x) == getattr(usual, x)}
    choices = replace(choices, **own)
    _expect_used(problem, choices)
    named = choices.degrees
    choices = _with_degrees(choices, min(devices, device.devices_per_machine))
    if problem == "stage_graph":  # operators that devices share are for few methods
        choices = replace(choices, degrees=named)
    _expect_shared(choices, work.microbatch)
    from planner.training.capture.trace import capture

    captured = capture(example.model, example.args, example.kwargs, name=model, granularity=granularity)
    captured = replace(captured, name=example.name)
    from planner.training.capture import instances

    facts = {"model": model, **facts, "hardware": device.name, "efficiency": choices.efficiency}
    facts |= {"forward-flops": captured.flops(), "granularity": granularity}
    facts |= {"rates": hardware} if measured else {}
    made: Mapping[str, Callable[..., Any]] = {
        "stage_partitioning": instances.stage_partitioning,
        "operator_partitioning": instances.operator_partitioning,
        "stage_graph": instances.stage_graph,
    }
    if problem == "stage_partitioning":  # trainers know machines; the bandwidth is that of both directions
        rates = device.inner_bandwidth_bytes_per_s, device.outer_bandwidth_bytes_per_s
        inner, outer = (2 * choices.link_efficiency * rate for rate in rates)
        facts |= {MACHINE: device.devices_per_machine, INNER: inner, OUTER: outer}
    instance = made[problem](captured, device, devices, work, choices, facts)
    degrees = choices.degrees if problem == "stage_partitioning" else ()
    beside: tuple[str, ...] = ()
    if degrees and choices.found_splits:
        from planner.training.capture.found_splits import FoundConfigurations

        beside = tuple(FoundConfigurations(captured, device, work, choices).notes())
    seconds = time.perf_counter() - started
    return Brought(validate(instance, example.name), captured, work, device, seconds, degrees, beside)


def _hardware(name: str) -> tuple[Hardware, dict[str, float]]:
    """A device by its name; of a file of rates with its links as measured, and the fields of `Choices` that it has."""
    if name in HARDWARE:
        return HARDWARE[name], {}
    if not Path(name).is_file():
        rule = f"one of {', '.join(HARDWARE)}, or a file of planner calibrate --out{closest(name, HARDWARE)}"
        raise UsageError.at("--hardware", name, rule)
    of, dtype, rates = read_rates(name)
    device = HARDWARE[of]
    peak, memory = device.peak_flop_per_s[dtype], device.memory_bandwidth_bytes_per_s
    found = {"efficiency": rates.get("flop_per_s", 0.0) / peak}
    found |= {"memory_efficiency": rates.get("memory_bytes_per_s", 0.0) / memory}
    found |= {"product_start_s": rates.get("product_start_s", 0.0), "latency_s": rates.get("inner_latency_s", 0.0)}
    links = [rates.get(f"{link}_bytes_per_s") for link in ("inner", "outer")]
    if any(links):
        peaks = device.inner_bandwidth_bytes_per_s, device.outer_bandwidth_bytes_per_s
        inner, outer = (own or LINK_EFFICIENCY * each for own, each in zip(links, peaks, strict=True))
        device = replace(device, inner_bandwidth_bytes_per_s=inner, outer_bandwidth_bytes_per_s=outer)
        found["link_efficiency"] = 1.0
    return device, {each: value for each, value in found.items() if value}


def _expect(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError.at(f"--{option}", value, " or ".join(known))


def _expect_used(problem: str, choices: Choices) -> None:
    """`UsageError` where configurations are offered of which the problem has none."""
    offered = {
        "--no-recompute": not choices.recompute,
        "--selective": choices.selective,
        "--sequence-parallel": choices.sequence_parallel,
        "--splits found": choices.found_splits,
        "--zero": choices.zero != (),
        "--tp": choices.degrees != () and problem != "stage_graph",
    }
    for option, given in offered.items():
        if given and problem != "stage_partitioning":
            rule = f"none with --problem {problem}: only nodes of stage_partitioning have several"
            raise UsageError(f"{option} chooses configurations; expected {rule}")


def _expect_shared(choices: Choices, microbatch: int) -> None:
    """`UsageError` where configurations of shared nodes are offered, and no degree has them."""
    above = [degree for degree in choices.degrees if degree > 1]
    rules = {
        "--sequence-parallel": (choices.sequence_parallel, bool(above)),
        "--splits found": (choices.found_splits, bool(above)),
        "--zero": (choices.zero != (), any(microbatch % degree == 0 for degree in above)),
    }
    for option, (given, is_possible) in rules.items():
        if given and not is_possible:
            degrees = f"--tp has {','.join(map(str, choices.degrees))}"
            rule = f" that divides the {microbatch} samples of a micro-batch" if above else ""
            raise UsageError(f"{option} is for nodes that devices share; expected a degree above 1{rule}: {degrees}")


def _microbatches(given: int | None, batch: str | None, facts: Mapping[str, Any]) -> int:
    """Micro-batches of a batch that is given in them, in samples or in tokens."""
    if batch is None:
        return 128 if given is None else given
    if given is not None:
        raise UsageError.at("--batch", batch, f"none with --microbatches {given}")
    count, tokens = batch.removesuffix("tokens").strip(), facts.get("seq-len")
    b: int = facts["microbatch"]
    if count != batch and tokens is None:
        raise UsageError.at("--batch", batch, "samples: this model has no length of sequences here")
    each = b * tokens if count != batch and tokens is not None else b
    if not count.isdecimal() or not 1 <= int(count) // each <= 10**6 or int(count) % each:
        rule = f"a multiple of the {each} {'samples' if count == batch else 'tokens'} of a micro-batch"
        raise UsageError.at("--batch", batch, f"{rule}, at most 1000000 of them")
    return int(count) // each


def _with_degrees(choices: Choices, most: int) -> Choices:
    """The choices with degrees that a server has devices for; `UsageError` for what breaks a rule."""
    for level in choices.zero:
        if level not in (1, 2, 3):
            raise UsageError.at("--zero", level, "levels of 1, 2 and 3")
    for name in ("efficiency", "memory_efficiency", "link_efficiency"):
        if not 0 < getattr(choices, name) <= 1:
            raise UsageError.at(f"--{name.replace('_', '-')}", getattr(choices, name), "a share of the peak, up to 1")
    if choices.weight_versions not in (1, 2):
        raise UsageError.at("--weight-versions", choices.weight_versions, "1 or 2")
    for degree in choices.degrees:
        if not 1 <= degree <= most:
            raise UsageError.at("--tp", degree, f"degrees from 1 to {most}, the devices of a server that there are")
    powers = tuple(2**power for power in range(most.bit_length()))
    return replace(choices, degrees=choices.degrees or powers)


def _example(
    kind: str, model: str, microbatch: int | None, sequence: int | None, dtype: str | None
) -> tuple[Example, dict[str, Any]]:
    """The model with its inputs, and what it runs with."""
    if kind == "hf":
        from planner.training.capture import hf

        _expect("dtype", dtype or "bf16", tuple(DTYPES))

        found, length = hf.example(model, sequence=sequence, microbatch=microbatch or 1, dtype=dtype or "bf16")
        facts = {"microbatch": microbatch or 1, "dtype": dtype or "bf16"}
        return found, {**facts, "seq-len": length} if length else facts
    if kind != "torch":
        raise UsageError.at("KIND", kind, " or ".join(KINDS))
    for option, value in (("--seq-len", sequence), ("--microbatch", microbatch), ("--dtype", dtype)):
        if value is not None:
            raise UsageError.at(option, value, "nothing: the function's model and inputs have it")
    found = example_in(model, meta=True)
    return found, _of_model(found)


def _of_model(example: Example) -> dict[str, Any]:
    """Samples of the first input, and the data type of most parameters."""
    import torch
    from torch.utils._pytree import tree_leaves

    names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64"}
    sizes: dict[str, int] = {}
    for each in example.model.parameters():
        name = names.get(each.dtype, str(each.dtype).removeprefix("torch."))
        sizes[name] = sizes.get(name, 0) + each.numel()
    inputs = [each for each in tree_leaves((example.args, dict(example.kwargs))) if isinstance(each, torch.Tensor)]
    first = inputs[0].shape[0] if inputs and inputs[0].dim() else 1
    return {"microbatch": int(first), "dtype": max(sizes, key=lambda name: sizes[name]) if sizes else "fp32"}


@dataclass(frozen=True)
class Profiled:
    """An instance with measured times, and the measurements."""

    instance: Instance
    captured: Captured
    found: list[Any]
    device: str

    def to_json(self) -> dict[str, Any]:
        """The measurements, a row for each node, in JSON types."""
        rows = [
            {
                "name": each.node.name,
                "forward_s": median(each.forward_s),
                "backward_s": median(each.backward_s),
                "spread": each.spread,
                "forward_flops": sum(self.captured.costs[op].flops for op in each.node.ops),
            }
            for each in self.found
        ]
        repeats = len(self.found[0].forward_s)
        return {"instance": self.captured.name, "device": self.device, "repeats": repeats, "rows": rows}

    def table(self) -> str:
        """The forward passes as `calibrate.COLUMNS` has them: operations, and bytes that ops without any move."""
        costs = self.captured.costs
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("name", "flops", "moved_bytes", "products", "seconds"))
        for each in self.found:
            flops = sum(costs[op].flops for op in each.node.ops)
            moved = sum(costs[op].moved_bytes for op in each.node.ops if not costs[op].flops)
            products = sum(costs[op].flops > 0 for op in each.node.ops)
            writer.writerow((each.node.name, flops, moved, products, median(each.forward_s)))
        return text.getvalue()


def shares_of(fit: Fit, hardware: str | None, dtype: str) -> dict[str, Any]:
    """Rates of a fit in JSON types, each with its interval; of a named device also as shares of its peaks."""
    shown: dict[str, Any] = {name: None if rate is None else rate.over(1.0) for name, rate in rates_in(fit).items()}
    if hardware is None:
        return shown
    _expect("hardware", hardware, tuple(HARDWARE))
    device = HARDWARE[hardware]
    _expect("dtype", dtype, tuple(device.peak_flop_per_s))
    peaks = {"efficiency": (fit.products, device.peak_flop_per_s[dtype])}
    peaks |= {"memory_efficiency": (fit.memory, device.memory_bandwidth_bytes_per_s)}
    return shown | {name: None if rate is None else rate.over(peak) for name, (rate, peak) in peaks.items()}


def measure(
    model: str,
    *,
    memory: str,
    bandwidth: str,
    devices: int = 8,
    microbatches: int = 128,
    granularity: str = "block",
    repeats: int = 5,
    warmup: int = 1,
) -> Profiled:
    """Measure the nodes of the model that ``FILE.py:FUNCTION`` makes, in this process, and make an instance of them.

    ``memory`` and ``bandwidth`` are those of the devices that it is planned for, with units; other parameters are as of
    `bring` and `profile.profile_nodes`.

    `UsageError` if a package is missing, a quantity breaks its rule, or the model cannot be made, traced or run.
    """
    size, rate = _quantity("--memory", memory, parse_bytes), _quantity("--bandwidth", bandwidth, parse_bandwidth)
    _expect("granularity", granularity, ("block", "op"))
    expect_packages("torch", for_what="planner profile")
    example = example_in(model, meta=False)
    facts = _of_model(example)
    if facts["dtype"] not in DTYPES:
        raise UsageError.at(
            model, f"parameters of {facts['dtype']}", f"one of {', '.join(each for each in DTYPES if each != 'fp8')}"
        )
    from planner.training.capture.profile import instance_of, profile_nodes
    from planner.training.capture.trace import capture

    captured = capture(example.model, example.args, example.kwargs, name=model, granularity=granularity)
    captured = replace(captured, name=example.name)
    try:
        found = profile_nodes(captured, example.args, example.kwargs, repeats=repeats, warmup=warmup)
    except Exception as error:  # whatever the model does with its data
        raise UsageError(f"{model}: run is {words(error)!r}; expected a model that runs with these inputs") from error
    device = str(next(example.model.parameters()).device)
    # Times are measured: no rate is used. A half of the bandwidth is that of each direction.
    machine = Hardware(device, dict.fromkeys(DTYPES, 1.0), size, 1.0, rate / 2, rate / 2, devices, "measured")
    work = Work(facts["microbatch"], facts["dtype"], microbatches)
    facts |= {"model": model, "measured-on": device, "repeats": repeats, "granularity": granularity}
    instance = instance_of(captured, found, machine, devices, work, facts)
    return Profiled(validate(instance, example.name), captured, found, device)


def _quantity(option: str, given: str, parse: Callable[[Any], float]) -> float:
    try:
        return parse(given)
    except ValueError as error:
        raise UsageError.at(option, given, str(error)) from None

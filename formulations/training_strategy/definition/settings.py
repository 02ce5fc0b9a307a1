"""What an instance of a training strategy is read from, and what a caller may change of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

from formulations.contract.family import parse_overrides
from formulations.stage_partitioning.definition import settings as flat_overrides
from formulations.stage_partitioning.definition.settings import describe as describe_flat
from formulations.stage_partitioning.definition.settings import read as read_flat
from formulations.stage_partitioning.definition.settings import recognise as recognise_flat
from formulations.stage_partitioning.definition.trainers import TRAINERS
from formulations.training_strategy.definition.sharing import Shared, of_shared
from instances.errors import expect
from instances.memory_schemes import BY_TRAINER, SCHEMES, Bookkeeping
from instances.parameters import Setting, one_of, parse_amount, parse_count, parse_degrees, parse_flag, parse_names
from instances.problems.flushed_partitioning import FlushedInstance
from instances.problems.stage_edits import change_tmpcs
from instances.problems.stage_partitioning import Layer
from instances.problems.training_strategy import (
    INNER,
    MACHINE,
    MOST_SHARED,
    OUTER,
    ROUNDED,
    Exchanged,
    Schedule,
    StrategyInstance,
    check,
    shared_per_weight,
)
from instances.requirements import Requirement, expect_none, with_requirements
from instances.rules import NodeId
from instances.units import parse_bandwidth


def also_reads(content: Any) -> bool:
    """A flat network, too, with the overrides that make it a trainer's; and a batch of flushed partitioning."""
    return recognise_flat(content) or _is_flushed(content)


def _is_flushed(content: Any) -> bool:
    is_file = isinstance(content, dict) and content.get("problem") == "flushed_partitioning"
    return is_file or isinstance(content, FlushedInstance)


def _schedules(value: Any) -> tuple[Schedule, ...]:
    return tuple(Schedule(one_of(*Schedule)(name)) for name in parse_names(value))


def _per_weight(books: Bookkeeping) -> tuple[float, float]:
    """Gradients and states of a rule, in bytes per byte of weights."""
    return books.gradient_bytes / books.parameter_bytes, books.optimizer_bytes / books.parameter_bytes


#: The optimizer's states of memory schemes.
_SHARED = {name: _per_weight(SCHEMES[name])[1] for name in ("adam", "mixed")}


#: All levels that static bytes have, where an instance says what states there are, else what it has; all groups.
ANY = "any"
#: The scheme of imported models by data type: 32-bit weights of Adam's own where those of the model are 16 bits.
_OF_DTYPES = {"bf16": "mixed", "fp8": "mixed", "fp16": "mixed", "fp32": "adam", "fp64": "adam"}


def _states(value: Any) -> float | str:
    """A number, that of a scheme by its name, or the name of a trainer."""
    if isinstance(value, str) and value in {**_SHARED, **BY_TRAINER}:
        return _SHARED.get(value, value)
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if isinstance(value, bool) or not 0 <= found < math.inf:
        raise ValueError(f"{', '.join([*_SHARED, *BY_TRAINER])}, or a finite number >= 0 of bytes per byte of weights")
    return found


def _levels(value: Any) -> tuple[int, ...]:
    """Distinct levels, ascending, from "0,1,3", a number or a sequence; none for `ANY`."""
    if value in (ANY, ()):  # read once, or twice
        return ()
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    found = {str(part).strip() for part in parts}
    if not found or not found <= set(map(str, range(MOST_SHARED + 1))):
        raise ValueError(f"levels from 0 to {MOST_SHARED} such as 0,1,3, or {ANY}")
    return tuple(sorted(map(int, found)))


_OWN = (
    Setting(
        "schedule",
        _schedules,
        "schedules that a plan may choose from; zb-h1, zb-h2, zb-v and dualpipe-v have weight gradients apart",
        metavar="1f1b,gpipe,...",
        field="schedules",
    ),
    Setting(
        "virtual-stages",
        parse_count,
        "most chunks of layers of a device, with interleaved; zb-v and dualpipe-v have 2",
        metavar="V",
    ),
    Setting(
        "shard-optimizer",
        _states,
        "replicas share the optimizer's states (ZeRO 1): of adam 2 bytes for each of weights, of mixed precision 6; "
        "or all is held as a trainer holds it",
        metavar="|".join([*_SHARED, *BY_TRAINER, "BYTES"]),
        field="sharded_per_weight",
    ),
    Setting(
        "offload-optimizer",
        parse_bandwidth,
        "optimizer states are on the host: bytes between it and each device, which follow all sums of gradients "
        "(Megatron's --optimizer-cpu-offload)",
        metavar="SIZE/s",
        field="host_bandwidth",
    ),
    Setting("host-updates", parse_bandwidth, "weights that it updates for a device; else in no time", metavar="SIZE/s"),
    Setting(
        "offload-fraction",
        parse_amount,
        "the share of the weights whose states are there, else 1",
        metavar="F",
        field="offloaded",
    ),
    Setting(
        "sharding",
        _levels,
        "what replicas may share: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too (ZeRO's stages, FSDP)",
        metavar=f"0,1,2,3|{ANY}",
    ),
    Setting(
        "cp", parse_degrees, "degrees of context parallelism to choose from", metavar="1,2,...", field="cp_degrees"
    ),
    Setting("ep", parse_degrees, "degrees of expert parallelism to choose from", metavar="1,2,...", field="ep_degrees"),
    Setting(
        "shard-groups",
        lambda value: () if value in (ANY, ()) else parse_degrees(value),
        "groups of replicas to choose from: each shares in itself what --sharding says (HSDP)",
        metavar=f"1,2,...|{ANY}",
    ),
    Setting("devices-per-machine", parse_count, "devices that --inner-bandwidth joins", metavar="G"),
    Setting("inner-bandwidth", parse_bandwidth, "between devices of a machine", metavar="SIZE/s"),
    Setting(
        "any-degree-order",
        parse_flag,
        "degrees lie on devices as tp-cp-ep-dp-pp, innermost first, or tp-cp-ep-pp-dp (--use-tp-pp-dp-mapping)",
        is_flag=True,
    ),
    Setting(
        "overlap-gradients",
        parse_flag,
        "gradients are summed beside the last backward passes (Megatron's --overlap-grad-reduce, buckets of DDP, FSDP)",
        field="overlaps_gradients",
        is_flag=True,
    ),
)
_NOT_SHARED = {"exactly", "realizable", "cost-model"}
#: A caller who names a trainer may not know that the objective of what was declared as another problem is replaced.
_OF_TRAINERS = "read as training_strategy: the objective is a simulated iteration of a schedule that the trainer has"
_NEVER = "; of a pipeline that is never flushed: --problem stage_partitioning"
#: What imports note of layers that exchange it.
_EXCHANGED = tuple(each.name for each in fields_of(Exchanged))
#: Files of imports before those that note machines (``MACHINE``).
_OLD_IMPORT = "imported at the bandwidth of one direction, and without machines: import it again, or give --bandwidth"
#: A requirement on plans of all layers, not on the flat instance.
_TRAINER = Setting(
    "realizable",
    one_of(*TRAINERS),
    f"only plans that this trainer can run, by a schedule of its own: {', '.join(TRAINERS)}",
    metavar="TRAINER",
)
#: What is minimised, and what its time is of.
MINIMISES, SWEEPABLE = {"": "time of a simulated iteration"}, "batch"
#: The flat family's settings, but a batch has N micro-batches whatever the degrees.
OVERRIDES = (*(setting for setting in flat_overrides.OVERRIDES if setting.name not in _NOT_SHARED), *_OWN, _TRAINER)


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> StrategyInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad.

    The ``flat`` part of the JSON is any content that stage partitioning reads, also a file of Piper's release; such
    content alone is an instance of 1F1B. A batch of flushed partitioning keeps its schedule; machines are refused.
    """
    given = parse_overrides(overrides, OVERRIDES, where)
    trainer = given.pop("realizable", None)
    own = {each.field or each.name.replace("-", "_"): given.pop(each.name) for each in _OWN if each.name in given}
    is_own = not (recognise_flat(content) or _is_flushed(content))
    if recognise_flat(content):
        made = _on_machines(StrategyInstance(read_flat(content, where, given)), own, bandwidth="bandwidth" in given)
        if own.keys() & {"cp_degrees", "ep_degrees"}:
            made = replace(made, exchanged=_noted(made.flat.layers))
    else:
        kind: type[Any] = FlushedInstance if _is_flushed(content) else StrategyInstance
        made = content
        if not isinstance(content, kind):
            from instances.validation import read_keys  # imports pydantic, which only files need

            fields = read_keys(kind, content, where)
            flat = read_flat(fields.pop("flat"), f"{where}: flat", flat_overrides.reading(given))
            ids = {str(node): node for node in flat.index}
            of_nodes = {"exchanged": {ids.get(str(v), v): own for v, own in fields.get("exchanged", {}).items()}}
            made = kind(flat, **fields | (of_nodes if kind is StrategyInstance else {}))
        if isinstance(made, FlushedInstance):
            expect_none(made, where, "flushed_partitioning")
            rule = "none: all devices are joined by one bandwidth"
            expect(made.devices_per_machine is None, where, "devices_per_machine", made.devices_per_machine, rule)
            made = StrategyInstance(made.flat, (Schedule(made.schedule),))
        made = replace(made, flat=flat_overrides.apply(made.flat, given, where))
    holder = own.get("sharded_per_weight")
    if isinstance(holder, str):
        del own["sharded_per_weight"]
    made = _sharing(replace(made, **own), own.get("sharding"), where)
    made = _as_held(made, holder) if isinstance(holder, str) else made
    if trainer is not None:
        words = [] if is_own else [_OF_TRAINERS + _NEVER * recognise_flat(content)]
        warnings = (*made.flat.warnings, *words)
        made = replace(made, flat=replace(made.flat, warnings=warnings))
        made = with_requirements(made, [Requirement("realizable", (trainer,), "==", 1)])
    check(made, where)
    return made


def _noted(layers: Sequence[Layer]) -> dict[NodeId, Exchanged]:
    """By layer, what its import has noted of it (`Layer.work`), if anything."""
    found = {}
    for layer in layers:
        own = {each: layer.work[each] for each in _EXCHANGED if each in layer.work}
        if own and all(not isinstance(x, str | bool) and x >= 0 for x in own.values()):
            found[layer.id] = Exchanged(**{name: float(x) for name, x in own.items() if name != "experts"},
                                        experts=int(own.get("experts", 0)))  # fmt: skip
    return found


def _on_machines(instance: StrategyInstance, own: Mapping[str, Any], *, bandwidth: bool) -> StrategyInstance:
    """The instance on the machines of ``own``, else of its import; ``bandwidth``: the network's is given already."""
    flat = instance.flat
    match [flat.options.get(name) for name in (MACHINE, INNER, OUTER)] if flat.time_unit == "s" else []:
        case [int(count), float(inner) | int(inner), float(outer) | int(outer)] if (
            count is not True and min(count, inner, outer) > 0
        ):
            count, inner = own.get("devices_per_machine", count), own.get("inner_bandwidth", inner)
            several = flat.num_devices > count
            made = replace(instance, flat=flat if bandwidth else replace(flat, bandwidth=outer if several else inner))
            is_said = several or own.keys() & {"devices_per_machine", "inner_bandwidth"}
            return replace(made, devices_per_machine=count, inner_bandwidth=inner) if is_said else made
    if {"hardware", "granularity"} <= flat.options.keys() and MACHINE not in flat.options and not bandwidth:
        return replace(instance, flat=replace(flat, warnings=(*flat.warnings, _OLD_IMPORT)))
    return instance


def _sharing(instance: StrategyInstance, levels: tuple[int, ...] | None, where: str) -> StrategyInstance:
    """The instance with levels, and states by the data type of an imported model where none are given."""
    if levels is None or levels == (0,) or (levels and instance.sharded_per_weight):
        return instance
    made, dtype = instance, instance.flat.options.get("dtype")
    if not instance.sharded_per_weight:
        rule = "given with --sharding, where the instance is no imported model whose data type says it"
        expect(not levels or dtype in _OF_DTYPES, where, "shard-optimizer", None, rule)
        if dtype not in _OF_DTYPES:
            return instance
        made = replace(instance, sharded_per_weight=_SHARED[_OF_DTYPES[str(dtype)]])
    known = shareable(made)
    return replace(made, sharding=levels or known) if levels or len(known) > 1 else instance


def shareable(instance: StrategyInstance) -> tuple[int, ...]:
    """The levels that static bytes have, where an instance says what states there are; else those that it has."""
    if not instance.sharded_per_weight:
        return instance.levels
    held = (x for layer in instance.flat.layers for found in layer.tmpcs.values() for x in found if x.weight_bytes)
    most = min((x.static_bytes / x.weight_bytes for x in held), default=math.inf) * (1 + ROUNDED)
    return tuple(level for level in range(MOST_SHARED + 1) if shared_per_weight(instance, level) <= most)


_DECLARED = "static_bytes are as declared, not as {} holds weights: no data type of 16 bits says what is in them"


def _as_held(instance: StrategyInstance, trainer: str) -> StrategyInstance:
    """The instance with what a trainer holds of its weights, where the type of these alone says what static bytes have.

    Others, which somebody has declared, stay as they are; a warning says so.
    """
    flat, now = instance.flat, (instance.gradients_per_weight, instance.sharded_per_weight or _SHARED["mixed"])
    is_ruled = _OF_DTYPES.get(str(flat.options.get("dtype"))) == "mixed"
    is_ruled = is_ruled and now in map(_per_weight, (SCHEMES["mixed"], *BY_TRAINER.values()))
    every = [x for layer in flat.layers for found in layer.tmpcs.values() for x in found]
    is_ruled = is_ruled and all((1 + sum(now)) * x.weight_bytes <= x.static_bytes * (1 + ROUNDED) for x in every)
    if not is_ruled:
        return replace(instance, flat=replace(flat, warnings=(*flat.warnings, _DECLARED.format(trainer))))
    gradients, states = _per_weight(BY_TRAINER[trainer])
    more = gradients + states - sum(now)
    flat = change_tmpcs(flat, lambda x: replace(x, static_bytes=x.static_bytes + more * x.weight_bytes))
    return replace(instance, flat=flat, sharded_per_weight=states, gradients_per_weight=gradients)


def describe(instance: StrategyInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    own = {"schedules": ", ".join(instance.schedules), "virtual_stages": instance.virtual_stages}
    return {**describe_flat(instance.flat), **own}


def memory_pressure(instance: StrategyInstance) -> float | None:
    """That of the flat instance, of the optimizer states the share of a replica where these are most."""
    by = Shared(max(instance.levels), max(2, instance.flat.num_microbatches))
    return flat_overrides.memory_pressure(of_shared(instance, by).flat)

"""What may be in conflict in an instance of stage partitioning, what may repair it, and of what there may be more."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from formulations.contract.rounding import bytes_text, plural
from formulations.contract.what_if import (
    Change,
    Member,
    More,
    layers_among,
    more_bandwidth,
    more_memory,
    named,
    once,
    one_requirement_less,
    other_memory,
    requirement_members,
    rules_among,
    smaller_microbatches,
    stage_rows,
    without_requirements,
)
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.plan_figures import memory_rows
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, stage_memory, stage_time, suffix_sums
from formulations.stage_partitioning.definition.settings import PER_SECOND
from formulations.stage_partitioning.questions.noise import factors as factors
from formulations.stage_partitioning.questions.noise import noisy as noisy
from formulations.stage_partitioning.questions.why_infeasible import most_devices, unlimited_devices
from instances.parameters import MAX_AMOUNT, MAX_COUNT
from instances.problems.stage_partitioning import CostModel, Layer, StageInstance, Tmpc
from instances.requirements import requirements_of
from instances.rules import NodeId

#: A TMPC that keeps less takes a third more time: the forward pass runs once more.
RECOMPUTED = 4 / 3
#: Numbers of devices that are tried one by one.
_TRIES = 256
_SHARES = (0.5, 0.25, 0.125, 0.0625, 0.0)


def members(instance: StageInstance) -> tuple[Member, ...]:
    """Rules first, then the layers, those that need little first."""
    N, K, sums = instance.num_microbatches, instance.num_devices, "exactly" if instance.exactly else "at most"
    found = []
    if instance.max_dp_degree is not None:
        found.append(Member("rule", "max-dp", f"no stage has a data-parallel degree above {instance.max_dp_degree}"))
    if _divides(instance):
        found.append(Member("rule", "cost-model", f"data-parallel degrees divide the {N} micro-batches of a batch"))
    found.append(Member("rule", "microbatches", f"the data-parallel degrees of all stages sum to {sums} {N}"))
    found += requirement_members(instance)
    found.append(Member("rule", "devices", f"there {'is' if K == 1 else 'are'} {plural(K, 'device')}"))
    found.append(Member("rule", "memory", f"a device has {bytes_text(instance.memory_bytes)}"))
    layers = sorted(instance.layers, key=lambda layer: _least(layer, K)[0])
    return (*found, *(Member("layer", layer.id, _describe(layer, K)) for layer in layers))


def _divides(instance: StageInstance) -> bool:
    """Whether degrees have to divide N by a rule that can go alone: carried activations would go with it."""
    return instance.cost_model is not CostModel.PAPER and not instance.shared_activations


def _least(layer: Layer, devices: int) -> tuple[float, int, str]:
    """The least bytes that a device holds of a layer with one micro-batch in flight, with its degree and TMPC.

    Of the degrees that the devices allow, where there are any.
    """
    every = [(x.activation_bytes + x.static_bytes, t, x.id) for t, found in layer.tmpcs.items() for x in found]
    return min((each for each in every if each[1] <= devices), default=min(every))


def _describe(layer: Layer, devices: int) -> str:
    needed, degree, tmpc = _least(layer, devices)
    where = "a device" if degree == 1 else f"each of {degree} devices"
    return f"layer {named(layer.id, layer.name)} needs at least {bytes_text(needed)} on {where} (TMPC {tmpc})"


def relax(instance: StageInstance, dropped: frozenset[Member]) -> list[StageInstance]:
    """The instance without some rules, and with layers that need nothing and run at every degree.

    Devices are then as many as the micro-batches and the largest degree can take, micro-batches as many as the devices
    (a multiple of the declared ones), so that each of the two is no limit while the other stays.
    """
    names = rules_among(dropped)
    changes: dict[str, Any] = {}
    if "max-dp" in names:
        changes["max_dp_degree"] = None
    if "cost-model" in names:
        changes["cost_model"] = CostModel.PAPER
    if "devices" in names:
        changes["num_devices"] = max(instance.num_devices, unlimited_devices(instance))
    if "microbatches" in names:
        most = max(changes.get("num_devices", instance.num_devices), instance.num_microbatches)
        changes |= {"num_microbatches": _multiple(instance.num_microbatches, most), "exactly": False}
    if "memory" in names:
        changes["memory_bytes"] = MAX_AMOUNT
    free = layers_among(dropped)
    if free:
        degrees = sorted({1, *(t for layer in instance.layers for t in layer.tmpcs)})
        changes["layers"] = tuple(_free(layer, degrees) if layer.id in free else layer for layer in instance.layers)
    return [replace(without_requirements(instance, dropped), **changes)]


def _multiple(count: int, most: int) -> int:
    """The least multiple of ``count`` that reaches ``most``, as far as an instance may declare it."""
    return count * min(-(-most // count), MAX_COUNT // count)


def _free(layer: Layer, degrees: Sequence[int]) -> Layer:
    """The layer with one more TMPC, at every degree, that takes nothing."""

    def free(degree: int) -> Tmpc:
        taken = {x.id for x in layer.tmpcs.get(degree, ())}
        return Tmpc(_new_name("free", taken), 0.0, 0.0, 0.0, 0.0)

    return replace(layer, tmpcs={**layer.tmpcs, **{t: (*layer.tmpcs.get(t, ()), free(t)) for t in degrees}})


def _new_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    return name


def repairs(instance: StageInstance, layers: Sequence[NodeId]) -> list[list[Change[StageInstance]]]:
    """More memory, devices or micro-batches, a rule less, a TMPC more (of one layer, else of all), smaller ones."""
    found = [[_memory(instance)], [_devices(instance)], *([each] for each in _fewer_rules(instance))]
    if not instance.exactly:
        found.append([_microbatches(instance)])
    every = [layer.id for layer in instance.layers]
    holding = [
        v
        for v in layers
        if any(x.activation_bytes for found in instance.layers[instance.index[v]].tmpcs.values() for x in found)
    ]
    found.append([_recompute(instance, [v]) for v in holding])
    found.append([_recompute(instance, every)])
    if not instance.exactly:
        found.append([_smaller(instance)])
    return found


def _memory(instance: StageInstance) -> Change[StageInstance]:
    def needed(plan: StagePlan) -> float:
        sums = suffix_sums(plan)
        return max(stage_memory(instance, stage, s) for stage, s in zip(plan.stages, sums, strict=True))

    changed: Callable[[float], StageInstance] = lambda amount: replace(instance, memory_bytes=amount)  # noqa: E731
    return other_memory(instance.memory_bytes, changed, needed, MEMORY_SLACK)


def _devices(instance: StageInstance) -> Change[StageInstance]:
    """As many as plans can use; each number in turn where a trainer has to use all of them."""
    K, most = instance.num_devices, unlimited_devices(instance)
    in_turn = any(each.quantity == "realizable" and each.holds(1) for each in requirements_of(instance))
    tried = min(most, K + _TRIES) if in_turn else most
    return Change(
        "devices",
        lambda amount: plural(int(amount), "device"),
        lambda amount: replace(instance, num_devices=int(amount)),
        range(K + 1, tried + 1),
        in_turn=in_turn,
        untried=f"more than {tried} devices" if tried < most_devices(instance) else "",
    )


def _microbatches(instance: StageInstance) -> Change[StageInstance]:
    """Under the released cost model doubled again and again: more divisors, and those that there were."""
    N, most = instance.num_microbatches, _multiple(instance.num_microbatches, instance.num_devices)
    steps: Sequence[float] = range(N + 1, most + 1)
    untried = "" if most >= instance.num_devices else f"more than {most} micro-batches in a batch"
    if instance.cost_model is not CostModel.PAPER:
        steps = tuple(N * 2**power for power in range(1, 11) if N * 2**power <= MAX_COUNT)
        untried = f"micro-batches other than twice as many, up to {max([N, *steps]):.0f} in a batch"
    return Change(
        "microbatches",
        lambda amount: f"{amount:.0f} micro-batches in a batch",
        lambda amount: replace(instance, num_microbatches=int(amount)),
        steps,
        untried=untried,
    )


def _fewer_rules(instance: StageInstance) -> list[Change[StageInstance]]:
    """One rule or requirement less."""
    found = []
    if instance.exactly:
        N = instance.num_microbatches
        text = f"data-parallel degrees that sum to at most {N}, not exactly"
        found.append(once("exactly", text, replace(instance, exactly=False)))
    if instance.max_dp_degree is not None:
        found.append(once("max-dp", "data-parallel degrees of any size", replace(instance, max_dp_degree=None)))
    if _divides(instance):
        text = "data-parallel degrees that divide nothing (cost model paper)"
        found.append(once("cost-model", text, replace(instance, cost_model=CostModel.PAPER), same_times=False))
    return [*found, *one_requirement_less(instance)]


def _recompute(instance: StageInstance, layers: Sequence[NodeId]) -> Change[StageInstance]:
    """One more TMPC beside each TMPC of some layers: it keeps a share of the activations and takes 4/3 of the time."""
    chosen = set(layers)

    def changed(share: float) -> StageInstance:
        return replace(
            instance,
            layers=tuple(_with_less(layer, share) if layer.id in chosen else layer for layer in instance.layers),
        )

    def says(share: float) -> str:
        kept = "no activations" if share == 0 else f"1/{1 / share:.0f} of the activations"
        whose = f"layer {layers[0]}" if len(layers) == 1 else f"each of {len(layers)} layers"
        return f"one more TMPC of {whose} that keeps {kept} and takes 4/3 of the time"

    return Change("tmpc", says, changed, _SHARES)


def _with_less(layer: Layer, share: float) -> Layer:
    return replace(layer, tmpcs={t: (*found, *_lighter(found, share)) for t, found in layer.tmpcs.items()})


def _lighter(found: Sequence[Tmpc], share: float) -> list[Tmpc]:
    made: list[Tmpc] = []
    taken = {x.id for x in found}
    for x in found:
        name = _new_name(f"{x.id} recomputed", taken)
        taken.add(name)
        made.append(replace(x, id=name, activation_bytes=x.activation_bytes * share, time=x.time * RECOMPUTED))
    return made


def _smaller(instance: StageInstance) -> Change[StageInstance]:
    def changed(times: float) -> StageInstance:
        def smaller(x: Tmpc) -> Tmpc:
            return replace(x, activation_bytes=x.activation_bytes / times)

        layers = tuple(
            replace(layer, tmpcs={t: tuple(map(smaller, found)) for t, found in layer.tmpcs.items()})
            for layer in instance.layers
        )
        kept = tuple(replace(each, bytes=each.bytes / times) for each in instance.kept)
        more = instance.num_microbatches * int(times)
        return replace(instance, layers=layers, kept=kept, num_microbatches=more)

    return smaller_microbatches(instance.num_microbatches, changed)


def resources(instance: StageInstance) -> list[More[StageInstance]]:
    """One more GiB on each device, one more device, one more GB/s."""
    faster: Callable[[float], StageInstance] = lambda amount: replace(instance, bandwidth=amount)  # noqa: E731
    return [
        more_memory(_memory(instance)),
        More(_devices(instance), "one more device", instance.num_devices + 1),
        more_bandwidth(instance.bandwidth, faster, 1e9 / PER_SECOND[instance.time_unit]),
    ]


def rows(instance: StageInstance, plan: StagePlan) -> list[dict[str, Any]]:
    """Time, share of the bottleneck's time, memory and share of a device's memory of every stage."""
    held = memory_rows(instance, plan)
    times = [stage_time(instance, stage) for stage in plan.stages]
    found = rows_of(instance, plan, times, [row["memory_bytes"] for row in held])
    return [{**row, "slack_bytes": own["slack_bytes"]} for row, own in zip(found, held, strict=True)]


def rows_of(
    instance: StageInstance, plan: StagePlan, times: Sequence[float], held: Sequence[float]
) -> list[dict[str, Any]]:
    """The same of times and bytes that are known."""
    own = (
        {"nodes": list(stage.nodes), "dp_degree": stage.dp_degree, "tp_degree": stage.tp_degree}
        for stage in plan.stages
    )
    return stage_rows(own, "time_per_sample", times, held, [instance.memory_bytes] * len(held))

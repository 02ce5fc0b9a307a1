"""What a room brings to questions next to the optimum: what may be in conflict, and which numbers may be changed.

Nothing here solves; `planner.analysis` asks, and exact methods answer.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from formulations.contract.rounding import bytes_text
from instances.parameters import MAX_AMOUNT, MAX_COUNT
from instances.requirements import Requirement, requirements_of

Instance = TypeVar("Instance")


@dataclass(frozen=True)
class Member:
    """A rule or a layer that an instance declares, and that can be left out of it.

    ``kind`` is ``rule``, ``requirement`` or ``layer``; ``says`` states it in a sentence.
    """

    kind: str
    name: int | str
    says: str


@dataclass(frozen=True)
class Change(Generic[Instance]):
    """Something of an instance that can be changed, step by step, each step allowing all plans of the one before.

    ``name``: what is changed, such as ``memory``.
    ``says(amount)``: the change in words.
    ``changed(amount)``: the instance with it.
    ``steps``: the amounts that differ, the smallest change first; empty where the amount is a real number.
    ``needed(plan)``: of a real amount, how much a plan needs; ``most`` is the largest that may be declared,
    ``declared`` what is, and a plan fits into what it needs over ``slack``.
    ``same_times``: whether the objective of the changed instance means what that of the instance does.
    ``in_turn``: a step need not allow the plans of those before it: each is tried, the first that helps is named.
    ``within(amount)``, where a step need not allow the plans of those before it: an instance that has a
    plan where, and only where, one of the steps up to this amount has one; ``None``: ``changed`` is such an instance.
    ``untried``: what is not tried though it might help, in words; empty: it is proved that nothing beyond the steps
    does.
    """

    name: str
    says: Callable[[float], str]
    changed: Callable[[float], Instance]
    steps: Sequence[float] = ()
    needed: Callable[[Any], float] | None = None
    most: float = 0.0
    slack: float = 1.0
    declared: float = 0.0
    same_times: bool = True
    in_turn: bool = False
    within: Callable[[float], Instance] | None = None
    untried: str = ""


@dataclass(frozen=True)
class More(Generic[Instance]):
    """A resource of which there may be more: a unit more (``unit`` in words), and all amounts that can be tried."""

    change: Change[Instance]
    unit: str
    amount: float


@dataclass(frozen=True)
class Factor(Generic[Instance]):
    """A parameter that may be so many times what is declared, the plan and its memory staying as they are.

    ``name``, ``says``: for JSON and in words.
    ``scaled(factor)``: the instance with it. The objective of every plan is monotone in the factor.
    ``steeper(slope)``, of a parameter in which the objective of every plan is the larger of a constant and
    of a line that does not fall: what ``scaled`` is of the instance without plans whose line rises by at most ``slope``
    (it may keep some), or ``None`` if there are no others; ``None`` in its place: objectives are of another form.
    ``connected``: whether a plan that is optimal at two factors is so at all in between: the objective of every plan is
    linear in the factor, or, but for a term that all plans share, the larger of a constant and of a line with one
    slope.
    """

    name: str
    says: str
    scaled: Callable[[float], Instance]
    steeper: Callable[[float], Callable[[float], Instance] | None] | None = None
    connected: bool = False


@dataclass(frozen=True)
class Questions(Generic[Instance]):
    """What a room knows of its instances for ``explain`` and ``sensitivity``.

    ``members(instance)``: what may be in conflict; those first that should rather be left out.
    ``relaxed(instance, dropped)``: the instance without these members, as instances of which one has a
    plan where what is left can be kept, and none where it cannot; every plan of the instance has one there.
    ``repairs(instance, layers)``: groups of changes that may make it feasible, of each of which the
    smallest is named; ``layers`` are those in conflict.
    ``resources(instance)``: what there may be more of, where there is a plan.
    ``rows(instance, plan)``: what each stage takes: ``stage``, ``time_share`` (of the slowest's),
    ``memory_share`` (of a device's; ``None``: there is no limit), and whatever else is known.
    ``factors(instance)``: parameters that may be other than they are declared; memory, of which plans need
    an amount, is the resource of that name instead. ``None``: they are not studied.
    ``noisy(instance, draw)``: the instance with a factor ``draw()`` on each measured number; with
    ``factors``.
    ``decisions(instance)``: what plans may decide, each a requirement that a quantity has one of its values, whatever
    fits; ``None``: they are not priced.
    """

    members: Callable[[Instance], tuple[Member, ...]]
    relaxed: Callable[[Instance, frozenset[Member]], Sequence[Instance]]
    repairs: Callable[[Instance, Sequence[int | str]], Sequence[Sequence[Change[Instance]]]]
    resources: Callable[[Instance], Sequence[More[Instance]]]
    rows: Callable[[Instance, Any], Sequence[dict[str, Any]]]
    factors: Callable[[Instance], Sequence[Factor[Instance]]] | None = None
    noisy: Callable[[Instance, Callable[[], float]], Instance] | None = None
    decisions: Callable[[Instance], Sequence[Requirement]] | None = None


def once(name: str, says: str, changed: Instance, *, same_times: bool = True) -> Change[Instance]:
    """A change that is made or not."""
    return Change(name, lambda _: says, lambda _: changed, (1.0,), same_times=same_times)


def other_memory(
    declared: float,
    changed: Callable[[float], Instance],
    needed: Callable[[Any], float],
    slack: float = 1.0,
    says: str = "{} on each device",
) -> Change[Instance]:
    """Other bytes than declared; the parameters are those of `Change`."""

    def text(amount: float) -> str:
        return says.format(bytes_text(amount, up=True))

    return Change("memory", text, changed, needed=needed, most=MAX_AMOUNT, slack=slack, declared=declared)


def more_memory(change: Change[Instance], where: str = " on each device") -> More[Instance]:
    """One more GiB than declared."""
    return More(change, f"one more GiB{where}", change.declared + 2.0**30)


def more_bandwidth(
    declared: float, changed: Callable[[float], Instance], gigabyte_per_s: float = 1e9
) -> More[Instance]:
    """One more GB/s, which is ``gigabyte_per_s`` in the unit of the instance."""
    faster = Change("bandwidth", lambda amount: f"{amount / gigabyte_per_s:g} GB/s", changed)
    return More(faster, "one more GB/s", declared + gigabyte_per_s)


def smaller_microbatches(microbatches: int, changed: Callable[[float], Instance]) -> Change[Instance]:
    """Micro-batches so many times smaller, and so many times as many: activations shrink in proportion."""
    steps = tuple(2.0**power for power in range(1, 11) if microbatches * 2**power <= MAX_COUNT)
    return Change(
        "microbatch-size",
        lambda times: f"micro-batches 1/{times:.0f} as large (activations in proportion; times need a profile)",
        changed,
        steps,
        same_times=False,
        untried=f"micro-batches smaller than 1/{max(steps, default=1):.0f}",
    )


def stage_rows(
    stages: Iterable[Mapping[str, Any]],
    time: str,
    times: Sequence[float],
    held: Sequence[float] = (),
    rooms: Sequence[float] = (),
) -> list[dict[str, Any]]:
    """`Questions.rows` of what is known of each stage, its time, and its bytes of those that it may hold, if any."""
    found = [
        {"stage": number, **own, time: spent, "time_share": share(spent, max(times)), "memory_share": None}
        for number, (own, spent) in enumerate(zip(stages, times, strict=True))
    ]
    for row, memory, room in zip(found if held else (), held, rooms, strict=True):
        row |= {"memory_bytes": memory, "memory_share": None if math.isinf(room) else share(memory, room)}
    return found


def share(part: float, whole: float) -> float:
    """Part of a whole; all of it where there is nothing."""
    return part / whole if whole else 1.0


def named(node: int | str, name: str) -> str:
    """A node, and its name where that says more."""
    return f"{node} ({name})" if name and str(node) not in name else str(node)


def requirement_members(instance: Any) -> list[Member]:
    """A member for each requirement of an instance."""
    return [Member("requirement", text, f"the requirement {text}") for text in instance.requirements]


def without_requirements(instance: Any, dropped: Iterable[Member]) -> Any:
    """The instance without the requirements among these members."""
    texts = {each.name for each in dropped if each.kind == "requirement"}
    return replace(instance, requirements=tuple(text for text in instance.requirements if text not in texts))


def one_requirement_less(instance: Any) -> list[Change[Any]]:
    """A change for each requirement: it is not there."""

    def without(text: str) -> Change[Any]:
        fewer = without_requirements(instance, [Member("requirement", text, "")])
        return once("requirement", f"no requirement {text}", fewer)

    return [without(text) for text in instance.requirements]


def with_fewer_stages(instance: Any, stages: int, of_stage: frozenset[str]) -> tuple[str, ...] | None:
    """The requirements that mean something where there are so many stages.

    Those on quantities ``of_stage`` of stages that there are not have the value 0; ``None`` if one is not met by it.
    """
    found = {each: each.quantity in of_stage and int(each.arguments[0]) >= stages for each in requirements_of(instance)}
    if any(is_absent and not each.holds(0) for each, is_absent in found.items()):
        return None
    return tuple(str(each) for each, is_absent in found.items() if not is_absent)


def rules_among(dropped: Iterable[Member]) -> set[int | str]:
    """The names of the rules among members."""
    return {each.name for each in dropped if each.kind == "rule"}


def layers_among(dropped: Iterable[Member]) -> set[int | str]:
    """The names of the layers among members."""
    return {each.name for each in dropped if each.kind == "layer"}

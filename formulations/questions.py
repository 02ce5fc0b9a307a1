"""What a room brings to questions next to the optimum: what may be in conflict, and which numbers may be changed.

Nothing here solves; `planner.studies` asks, and exact methods answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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

    Parameters
    ----------
    name
        What is changed, such as ``memory``.
    says
        ``says(amount)``: the change in words.
    changed
        ``changed(amount)``: the instance with it.
    steps
        The amounts that differ, the smallest change first; empty where the amount is a real number.
    needed
        ``needed(plan)``: of a real amount, how much a plan needs; ``most`` is the largest that may be declared,
        ``declared`` what is, and a plan fits into what it needs over ``slack``.
    same_times
        Whether the objective of the changed instance means what that of the instance does.
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


@dataclass(frozen=True)
class More(Generic[Instance]):
    """A resource of which there may be more: a unit more (``unit`` in words), and all amounts that can be tried."""

    change: Change[Instance]
    unit: str
    amount: float


@dataclass(frozen=True)
class Factor(Generic[Instance]):
    """A parameter that may be so many times what is declared, the plan and its memory staying as they are.

    Parameters
    ----------
    name, says
        For JSON and in words.
    scaled
        ``scaled(factor)``: the instance with it. The objective of every plan is monotone in the factor.
    steeper
        ``steeper(slope)``, of a parameter in which the objective of every plan is the larger of a constant and of a
        line that does not fall: what ``scaled`` is of the instance without plans whose line rises by at most ``slope``
        (it may keep some), or ``None`` if there are no others; ``None`` in its place: objectives are of another form.
    """

    name: str
    says: str
    scaled: Callable[[float], Instance]
    steeper: Callable[[float], Callable[[float], Instance] | None] | None = None


@dataclass(frozen=True)
class Questions(Generic[Instance]):
    """What a room knows of its instances for ``explain`` and ``sensitivity``.

    Parameters
    ----------
    members
        ``members(instance)``: what may be in conflict; those first that should rather be left out.
    relaxed
        ``relaxed(instance, dropped)``: the instance without these members; every plan of the instance has one there.
    repairs
        ``repairs(instance, layers)``: groups of changes that may make it feasible, of each of which the smallest is
        named; ``layers`` are those in conflict.
    resources
        ``resources(instance)``: what there may be more of, where there is a plan.
    rows
        ``rows(instance, plan)``: what each stage takes, and its share of each limit.
    factors
        ``factors(instance)``: parameters that may be other than they are declared; memory, of which plans need an
        amount, is the resource of that name instead.
    noisy
        ``noisy(instance, draw)``: the instance with a factor ``draw()`` on each measured number.
    """

    members: Callable[[Instance], tuple[Member, ...]]
    relaxed: Callable[[Instance, frozenset[Member]], Instance]
    repairs: Callable[[Instance, Sequence[int | str]], Sequence[Sequence[Change[Instance]]]]
    resources: Callable[[Instance], Sequence[More[Instance]]]
    rows: Callable[[Instance, Any], Sequence[dict[str, Any]]]
    factors: Callable[[Instance], Sequence[Factor[Instance]]]
    noisy: Callable[[Instance, Callable[[], float]], Instance]

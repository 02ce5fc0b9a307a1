"""The subproblems that arise inside a run, one to a row: which kinds there are, and what a row holds."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import formulations
from formulations.contract.family import Family
from formulations.contract.inner_problems import Arisen, Decision, Inside, Subproblem
from planner.files.load import family_named, family_of, validate
from planner.files.write import as_json
from planner.process.errors import CrosscheckError, UsageError
from solvers.outcome import Limits, Watch


@dataclass(frozen=True)
class InnerRow:
    """A subproblem as an instance that stands on its own: its name and origin say where it arose.

    ``inner`` chose ``plan`` (in its JSON form; ``None``: it found none), which is worth ``objective``. Rows of equal
    ``content`` differ in name and origin alone.
    """

    instance: Any
    inner: str
    plan: dict[str, Any] | None
    objective: float | None
    decision: Decision | None

    def to_json(self) -> dict[str, Any]:
        """What a file of rows holds of it: the instance in its family's own JSON."""
        content: dict[str, Any] = family_of(self.instance).to_json(self.instance)
        return content

    @cached_property
    def content(self) -> str:
        """The instance as JSON, without a name and an origin of its own."""
        family = family_of(self.instance)
        return as_json(family.to_json(replace(self.instance, name=family.name, origin={})))


def inside_of(instance: Any, problem: str | None, method: str | None) -> Inside:
    """The kind of subproblems that is requested: of ``problem``, inside ``method``; by default the first one there is.

    `UsageError` if the instance's family has none, or none of this problem, or this method has none of it.
    """
    family = family_of(instance)
    if not family.subproblems:
        known = ", ".join(each.name for each in formulations.FAMILIES if each.subproblems)
        raise UsageError.at("INSTANCE", family.name, f"an instance of a problem that others arise in: {known}")
    problems = list(dict.fromkeys(each.problem for each in family.subproblems))
    if problem is not None and problem not in problems:
        raise UsageError.unknown("--problem", problem, problems)
    found = [each for each in family.subproblems if problem in (None, each.problem)]
    if method is None:
        return found[0]
    for each in found:
        if each.method == method:
            return each
    raise UsageError.unknown("--from", method, [each.method for each in found])


def rows(
    instance: Any,
    inside: Inside,
    limits: Limits,
    sample: int | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> Iterator[InnerRow]:
    """The subproblems of a run on an instance, all or so many at random, in the order in which they arise.

    ``watch``: what ends the run early (default: the limits alone).

    `UsageError` if the method does not take the instance; `CrosscheckError` if what was chosen inside is no plan of its
    subproblem.
    """
    instance = validate(instance, requirements=False)
    family = family_of(instance)
    method = family.method(inside.method)
    refused = method.refusal(instance)
    if refused is not None:
        raise UsageError.at("--from", method.name, f"a method that takes {instance.name} ({refused})")
    family.load()
    method.load()
    assert inside.arise is not None
    watch = watch or Watch(limits)
    watch.start()
    arisen = inside.arise(instance, limits, watch)
    digest = hashlib.sha256(as_json(family.to_json(instance)).encode()).hexdigest()
    child = family_named(inside.problem)
    for number, each in _draw_sample(arisen, sample, seed):
        origin = {"parent": instance.name, "parent_problem": family.name, "parent_sha256": digest,
                  "method": inside.method, "number": number}  # fmt: skip
        yield _row(child, each(), f"{instance.name}-{inside.method}-{number}", origin)


def _draw_sample(arisen: Iterable[Arisen], sample: int | None, seed: int) -> Iterable[tuple[int, Arisen]]:
    """Each with its number; of a sample, which has every subproblem with the same chance, in their order."""
    if sample is None:
        return enumerate(arisen)
    rng = random.Random(seed)
    kept: list[tuple[int, Arisen]] = []
    for number, each in enumerate(arisen):
        if len(kept) < sample:
            kept.append((number, each))
        elif (place := rng.randrange(number + 1)) < sample:
            kept[place] = (number, each)
    return sorted(kept, key=lambda pair: pair[0])


def _row(child: Family[Any, Any], found: Subproblem, name: str, origin: dict[str, str | int | float]) -> InnerRow:
    plan, objective, form = found.plan, None, None
    origin["inner"] = found.inner
    if plan is not None:
        form = child.plan_to_json(found.instance, plan)
        broken = child.judge(found.instance, plan)
        if broken:
            evidence = {"problem": child.name, "instance": child.to_json(found.instance), "plan": form}
            raise CrosscheckError(f"{found.inner} chose a plan that breaks: {'; '.join(map(str, broken))}", evidence)
        objective = child.evaluate(found.instance, plan)
        origin |= {"objective": objective, "plan": as_json(form)}
    if found.decision is not None:
        origin["target"] = found.decision.target
    instance = replace(found.instance, name=name, origin={**origin, **found.origin})
    return InnerRow(instance, found.inner, form, objective, found.decision)

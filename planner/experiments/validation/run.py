"""Validate methods on a population: every instance, every method, and a reference that proves the optimum.

The distinct instances are cut into chunks. What is done lies in a folder, a line for each instance, so that a
validation that was killed goes on where it was; the totals do not depend on who solved which chunk, nor when.

Source: Piper, Appendix C, for any problem and any method.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from formulations.contract.family import Claim, Family
from planner.experiments.runner import Folder, Record, fingerprint
from planner.experiments.validation.folders import Population, write_table
from planner.experiments.validation.loss_by import ALSO, LossBy, losses_by
from planner.experiments.validation.records import (
    Fared,
    Handed,
    Work,
    columns_of,
    flat,
    size,
    solve_all,
    totals_of,
    worst_of,
)
from planner.experiments.validation.sources import HEADER, POPULATION, Member, members, same_problem
from planner.files.load import family_of
from planner.files.settings import expect_types, method_options
from planner.plugins.registry import functions_of
from planner.process import idle
from planner.process.errors import UsageError
from planner.process.executors import place, run_tasks
from planner.process.signals import end_if_pending
from planner.results.check import read_plan
from planner.results.frames import to_frame
from planner.results.result import html_table
from planner.solving.backends import examine_solver
from planner.solving.choose import find_method, reference_name
from planner.solving.compare import DEFAULT_TIME_S, expect_methods, plans_as_methods, write_reproducer
from planner.solving.solve import silent
from planner.types import Instance, Json, JsonObject
from solvers.outcome import Limits

#: Most instances of a chunk, and about how many chunks there are at least.
_LARGEST, _CHUNKS = 50, 256
#: The worst instances of every method that are kept as files.
WORST = 5


@dataclass(frozen=True)
class Validation:
    """How methods fared on a population.

    ``instances`` were validated, of ``wanted``: of ``infeasible`` it is proved that there is no plan, of ``unproved``
    neither that nor an optimum; ``methods`` has the totals by method, ``worst`` the files of the instances on which it
    lost most. ``by`` has the losses by the parameters that were named. ``records`` hold what came of every instance, in
    order, ``table`` is the file of rows, ``contradictions`` are claims that exclude each other. ``signal`` ended it
    early, if one did, and ``lost`` says how its workers did.
    """

    problem: str
    against: str
    instances: int
    wanted: int
    infeasible: int
    unproved: int
    methods: Mapping[str, Fared]
    worst: Mapping[str, Sequence[str]]
    out: str
    size_of: str
    table: str
    contradictions: tuple[str, ...]
    by: tuple[LossBy, ...] = ()
    records: Sequence[Mapping[str, Any]] = field(repr=False, default=())
    seconds: float = 0.0
    signal: int | None = None
    lost: str | None = None

    def to_json(self) -> dict[str, Json]:
        """The object that ``planner validate --json`` prints."""
        return {
            **{name: getattr(self, name) for name in ("problem", "against", "instances", "infeasible", "unproved")},
            "methods": {name: dict(vars(each)) for name, each in self.methods.items()},
            "worst": {name: list(files) for name, files in self.worst.items()},
            "out": self.out,
            **({"by": [each.to_json() for each in self.by]} if self.by else {}),
        }

    def to_frame(self) -> Any:
        """A data frame with a row for each instance and method (`planner.to_frame`)."""
        return to_frame(flat(self.records))

    def _repr_html_(self) -> str:
        return html_table([{"method": name, **vars(each)} for name, each in self.methods.items()])


@idle.kept()
def validate(
    sources: str | Instance | Sequence[str | Instance],
    *,
    methods: Sequence[str] | None = None,
    against: str | None = None,
    out: str | os.PathLike[str],
    count: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    dask: str | None = None,
    plans: Mapping[str, str | JsonObject] | None = None,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    worst: int = WORST,
    by: Sequence[str] = (),
    inputs: str | None = None,
    listen: Callable[[int, int], None] = lambda _done, _all: None,
    notice: Callable[[str], None] = silent,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Validation:
    """Run methods on all instances of a population, and measure their losses to the proved optima.

    Parameters
    ----------
    sources
        Files of rows, folders, patterns, catalog entries to draw from (`validation.sources`), or instances.
    methods
        Names, or ``FILE.py:FUNCTION``; default: all heuristics of the problem.
    against
        The method that proves the optima; default: ``exact``, or the problem's first exact method. What other methods
        prove counts as well.
    out
        Folder for the population, the records, the table of rows and the worst instances. What lies there of the same
        validation is not solved again.
    count, seed
        How many instances of each source: drawn, or a sample.
    jobs, dask
        Local processes, or the address of a dask scheduler.
    plans
        Plans that came from elsewhere, by name: each is entered on every instance.
    limits
        For each method on each instance; default: a minute. Its seed is ``seed`` unless limits are given.
    options
        Options of the methods; each takes its own.
    worst
        How many of the worst instances of each method become files.
    by
        Parameters that the sources draw, ``size`` or ``memory_pressure``: losses are divided by these as well.
    inputs, settings, overrides
        As for `planner.load`, for every instance; ``settings`` has those with the name of an argument.
    listen, notice
        Called with the number of distinct instances done and of all, and with lines that a person should read.

    Raises
    ------
    InstanceError
        If an instance cannot be read or breaks a rule, or the sources mix problems.
    UsageError
        If a method, option or parameter is unknown, a source is empty, or the folder holds something else.
    OSError
        If none of three processes for a function of yours can begin.
    """
    expect_types(listen=listen, notice=notice, limits=limits, options=options, plans=plans, inputs=inputs)
    expect_types(against=against, out=out, count=count, jobs=jobs, dask=dask, worst=worst)
    expect_methods(methods)
    opened, out = place(jobs, dask), os.fspath(out)
    if worst < 0:
        raise UsageError.at("--worst", worst, "at least 0")
    listed = [sources] if isinstance(sources, str) or not isinstance(sources, Sequence) else sources
    limits = limits or Limits(DEFAULT_TIME_S, seed=seed)
    population, family, size_of = _population(_members(listed, count, seed), inputs, {**(settings or {}), **overrides})
    against = against or reference_name(family)
    names, work = _work(family, methods, against, plans or {}, limits, options)
    if (jobs > 1 or dask) and (local := set(work.names) & set(functions_of(family.name))):
        raise UsageError.at("methods", ", ".join(sorted(local)), "FILE.py:FUNCTION with --jobs or --dask")
    for name in by:
        if name not in (known := [*population.parameters, *ALSO]):
            raise UsageError.unknown("--by", name, known)
    end_if_pending()  # before anything is written or solved
    began = time.perf_counter()
    title = {**_title(family, work, against), "population": population.digest}
    folder = Folder(out, "validation", HEADER, title, fingerprint(title), "their instances are solved again")
    folder.head()
    if not (folder.path / POPULATION).exists():
        population.write(folder.path / POPULATION)
    records = folder.records(notice)
    distinct = population.distinct
    if records:
        notice(f"{len(records)} of {len(distinct)} distinct instances lie in {out} already")
    listen(len(records), len(distinct))

    def keep(_position: int, done: tuple[list[Record], int | None]) -> int | None:
        found, stopped = done
        records.update(folder.keep(found))
        listen(len(records), len(distinct))
        return stopped

    left = [number for number in distinct if number not in records]
    ended = run_tasks(opened, solve_all, _tasks(work, population, left), keep)
    every = list(_expand(population, records))
    lost = {name: worst_of(every, name, worst) for name in names}
    return Validation(
        problem=family.name,
        against=against,
        instances=len(every),
        wanted=len(population.origins),
        infeasible=sum(record["infeasible"] for record in every),
        unproved=sum(record["optimum"] is None and not record["infeasible"] for record in every),
        methods={name: totals_of(every, name) for name in names},
        worst=folder.write_worst({n: [population.text(each["number"]) for each in lost[n]] for n in lost}),
        out=out,
        size_of=size_of,
        table=write_table(folder.path, flat(every), columns_of(every)),
        by=losses_by(every, by, names),
        contradictions=_contradictions(folder, family, population, records),
        records=every,
        seconds=time.perf_counter() - began,
        signal=ended.signal,
        lost=ended.lost,
    )


def _members(sources: Sequence[Any], count: int | None, seed: int) -> Iterator[Member]:
    """The members of what was named, and of the instances that were given."""
    for source in sources:
        if isinstance(source, str):
            yield from members([source], count, seed)
        else:
            yield Member(getattr(source, "name", "instance"), content=source)


def _population(
    found: Iterable[Member], inputs: str | None, overrides: Mapping[str, Any]
) -> tuple[Population, Family[Any, Any], str]:
    """All instances, read and written in one form, their problem, and what their size counts."""
    population, family, size_of = Population(), None, ""
    for member, instance in same_problem((member, member.load(inputs, overrides)) for member in found):
        if family is None:
            family = family_of(instance)
            size_of = size(family, instance)[0]
        end_if_pending()
        population.add(family.to_json(instance), instance.name, member.origin, member.drawn)
    if family is None:
        raise UsageError.at("SOURCE", "nothing", "at least one instance")
    return population, family, size_of


def _work(
    family: Family[Any, Any],
    methods: Sequence[str] | None,
    against: str,
    plans: Mapping[str, Any],
    limits: Limits,
    options: Mapping[str, Any] | None,
) -> tuple[tuple[str, ...], Work]:
    """The names of the methods that are validated, and what is done with every instance; whatever is wrong is said."""
    if methods is None:
        methods = [each.name for each in family.methods if each.claim is Claim.HEURISTIC]
        if not methods:
            raise UsageError(f"--methods is missing; expected names: {family.name} has no heuristic")
    chosen = [find_method(family, name) for name in [*methods, *([] if against in methods else [against])]]
    every = [method.name for method in chosen]
    held = {name: plan if isinstance(plan, Mapping) else read_plan(plan) for name, plan in plans.items()}
    chosen += plans_as_methods(family, plans, chosen)
    method_options(chosen, options or {})
    examine_solver(chosen, limits)
    return (*methods, *held), Work.of(family.name, every, held, limits, options or {})


def _title(family: Family[Any, Any], work: Work, against: str) -> dict[str, Any]:
    return {
        "problem": family.name,
        "against": against,
        "methods": {name: find_method(family, name).source for name in work.names},
        "plans": dict(work.plans),
        "limits": {name: value for name, value in vars(work.limits).items() if name in _LIMITS},
        "options": dict(work.options),
    }


#: The limits that a record depends on.
_LIMITS = ("time_s", "gap", "seed", "threads")


def _tasks(work: Work, population: Population, left: Sequence[int]) -> Iterator[tuple[Work, list[Handed]]]:
    most = max(1, min(_LARGEST, len(left) // _CHUNKS))
    numbers = iter(left)
    while chunk := list(islice(numbers, most)):
        yield work, [(number, population.origins[number], population.text(number)) for number in chunk]


def _expand(population: Population, records: Mapping[int, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A record for every instance, in order; identical ones share what came of them."""
    for number, first in enumerate(population.same_as):
        if first in records:
            own = {"number": number, "instance": population.names[number], "origin": population.origins[number]}
            yield {**records[first], **own, "same_as": first, "parameters": population.drawn[number]}


def _contradictions(
    folder: Folder, family: Family[Any, Any], population: Population, records: Mapping[int, Mapping[str, Any]]
) -> tuple[str, ...]:
    """What methods contradict each other in, a line for each instance, with the file that reproduces it."""
    found = []
    for number, record in sorted(records.items()):
        if record["contradictions"]:
            evidence = {**record, "problem": family.name, "instance": json.loads(population.text(number))}
            path = write_reproducer(str(folder.path / "reproducers"), evidence)
            found.append(f"{record['origin']}: {'; '.join(record['contradictions'])} (reproducer: {path})")
    return tuple(found)

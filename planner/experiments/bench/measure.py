"""Measure: cases x methods x seeds -> rows, as a table and as JSON lines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from formulations.contract.family import Family, Method
from planner.experiments.bench.suites import EVERY, Case
from planner.files.choices import split
from planner.files.load import family_of, load
from planner.files.settings import method_options
from planner.files.write import as_json, plain
from planner.plugins.registry import texts, texts_of
from planner.process.executors import Ended, place, run_tasks
from planner.process.signals import pending
from planner.process.versions import machine, today, versions
from planner.results.events import Event, improvements
from planner.results.optimality_loss import losses
from planner.results.result import Result
from planner.solving.backends import examine_solver, limits_for, solver_settings
from planner.solving.certify import certified_into
from planner.solving.choose import find_method, pick
from planner.solving.compare import is_proved, plans_as_methods, sane
from planner.solving.solve import run
from solvers.outcome import Limits, Stop

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True)
class MeasuredRow:
    """One method on one case with one seed: the median of ``all_seconds``, and the outcome of the last run.

    ``case`` is the file or catalog name that was named, ``instance`` what the instance is called;
    ``compile_seconds`` is the most that any run spent on compiling or loading kernels (not in ``seconds``);
    ``cpu_seconds``: the median of what this process computed for a run, all threads together, loading included;
    ``speedup`` is ``reference_s / seconds``; ``proved_by``: by whose means (`Result`); ``solver``: the solver and its
    options where they were chosen; ``source``: of a method or plan that a user brought, with the hash of its file;
    ``loss`` is to what all rows of the case prove (`with_losses`); ``reason``: why there is no plan; ``certificate``:
    of what is proved, if it was requested, or why there is none, under ``uncertified``; ``incumbents``: the seconds and
    objective of each better plan of the last run, the last one as it was verified. Older rows lack these eight.
    """

    case: str
    instance: str
    settings: Mapping[str, Any]
    method: str
    seed: int
    threads: int
    time_limit_s: float | None
    seconds: float
    all_seconds: tuple[float, ...]
    compile_seconds: float
    objective: float | None
    bound: float | None
    gap: float | None
    status: str
    stop: str
    unit: str
    reference_s: float | None
    date: str = ""
    machine: str = ""
    versions: Mapping[str, str] | None = None
    proved_by: str | None = None
    solver: Mapping[str, Any] | None = None
    source: str | None = None
    loss: float | None = None
    reason: str | None = None
    certificate: Mapping[str, Any] | None = None
    incumbents: tuple[tuple[float, float], ...] = ()
    signal: int | None = None
    cpu_seconds: float | None = None

    @property
    def key(self) -> str:
        """What was measured, whatever came of it: two rows with one key can be compared."""
        run = (self.method, self.seed, self.threads, self.time_limit_s, self.solver, self.source)
        return _key(self.case, self.settings, *run)

    @property
    def speedup(self) -> float | None:
        """How many times less time than the reference."""
        return self.reference_s / self.seconds if self.reference_s and self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """The JSON line, with date, machine and versions so that it can be compared later."""
        shown = {name: value for name, value in vars(self).items() if name != "signal"}
        return {**shown, "speedup": self.speedup}

    @classmethod
    def from_json(cls, content: Any) -> MeasuredRow:
        """The row of a JSON line's content; ``ValueError`` if a field is missing or of another type."""
        from pydantic import ValidationError

        try:
            return _reader().validate_json(as_json(content), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            name = first["loc"][0] if first["loc"] else "row"
            raise ValueError(f"{name} is {first['input']!r}; {first['msg']}") from None


def _key(case: str, settings: Any, method: str, seed: int, threads: int, time_s: float | None, *said: Any) -> str:
    return as_json([case, settings, method, seed, threads, time_s, *filter(None, said)])


@cache
def _reader() -> TypeAdapter[MeasuredRow]:
    from pydantic import TypeAdapter

    return TypeAdapter(MeasuredRow)


def measure(
    found: Sequence[Case],
    limits: Limits,
    repeats: int,
    inputs: str | None,
    keep: Callable[[MeasuredRow], None],
    seeds: Sequence[int] | None = None,
    known: Collection[str] = (),
    certificates: str | None = None,
    jobs: int = 1,
    dask: str | None = None,
) -> Ended:
    """Measure every case; a signal ends the measurement with the row it interrupted.

    ``keep``: called with each row as it is there.
    ``seeds``: every case is measured with each of them; default: the one of ``limits``.
    ``known``: keys of rows that are there already and are not measured again.
    ``certificates``: folder for certificates of what is proved; their seconds are not among those measured.
    ``jobs``, ``dask``: local processes, or the address of a dask scheduler; runs that share a machine take longer.
    """

    def keep_row(_position: int, row: MeasuredRow) -> int | None:
        keep(row)
        return row.signal

    opened = place(jobs, dask)
    planned = (
        (each, repeats, certificates)
        for case in found
        if pending() is None  # before the instance is read
        for each in plan_runs(case, limits, inputs, seeds or (limits.seed,))
        if each.key not in known
    )
    return run_tasks(opened, _Planned.row, planned, keep_row)


def plan_runs(case: Case, limits: Limits, inputs: str | None, seeds: Sequence[int]) -> Iterator[_Planned]:
    """What is to be measured of a case; rows of it have the same `MeasuredRow.key`."""
    methods = _methods(case, inputs, limits)
    examine_solver(methods, limits)
    for method in methods:
        for seed in seeds:
            own = replace(limits_for(method, limits), seed=seed)
            source = None if method in family_of(_load_case(case, inputs)).methods else method.source
            files = texts_of([method.name] if method.name not in case.plans else [])
            yield _Planned(case, method.name, source, own, inputs, files)


#: The instance of the case that was loaded last, in this process.
_LAST: dict[str, Any] = {}


def _load_case(case: Case, inputs: str | None) -> Any:
    key = as_json([case.instance, case.settings, inputs])
    found = _LAST.get(key)
    if found is None:
        found = load(case.instance, inputs=inputs, **split(case.settings)[0])
        _LAST.clear()
        _LAST[key] = found
    return found


@dataclass(frozen=True)
class _Planned:
    """A case with the name of one method and one seed, not measured yet: all that whoever measures it has to know.

    ``source`` is where a method or plan that a user brought comes from; ``None``: it is one of the family's. ``texts``
    has the method's file as it was read, by path.
    """

    case: Case
    method: str
    source: str | None
    limits: Limits
    inputs: str | None
    texts: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> str:
        """As `Row.key`."""
        limits = self.limits
        run = (self.method, limits.seed, limits.threads, limits.time_s, solver_settings(limits), self.source)
        return _key(self.case.instance, plain(self.case.settings), *run)

    def row(self, repeats: int, certificates: str | None = None) -> MeasuredRow:
        """Measure it, and certify what is proved into a folder."""
        results, cpu = [], []
        instance = _load_case(self.case, self.inputs)
        family = family_of(instance)
        with texts(self.texts):
            method = self._method(family)
        given = method_options([method], split(self.case.settings)[1])[method.name]
        for _ in range(repeats):
            events: list[Event] = []
            began = time.process_time()
            results.append(run(family, method, instance, self.limits, given, listen=events.append))
            cpu.append(time.process_time() - began)
            if results[-1].signal:
                break
        last = results[-1]
        times = tuple(result.seconds for result in results)
        compiling: list[Any] = [result.stats["compile_seconds"] for result in results]
        return MeasuredRow(
            case=self.case.instance,
            instance=last.instance,
            settings=self.case.settings,
            method=last.method,
            seed=self.limits.seed,
            threads=self.limits.threads,
            time_limit_s=self.limits.time_s,
            seconds=statistics.median(times),
            all_seconds=times,
            compile_seconds=max(compiling),
            **{name: getattr(last, name) for name in ("objective", "bound", "gap", "unit", "signal")},
            status=last.status.value,
            stop=last.stop.value,
            reference_s=self.case.reference_s,
            date=today(),
            machine=machine(),
            versions=versions(),
            proved_by=None if last.proved_by is None else str(last.proved_by),
            solver=solver_settings(self.limits) or None,
            source=self.source,
            reason=None if last.plan is not None else last.reason,
            certificate=None if certificates is None else self._certificate(certificates, instance, last),
            incumbents=() if last.objective is None else improvements(events),
            cpu_seconds=statistics.median(cpu),
        )

    def _method(self, family: Family[Any, Any]) -> Method[Any, Any]:
        plans = self.case.plans
        return (
            plans_as_methods(family, {self.method: plans[self.method]})[0]
            if self.method in plans
            else find_method(family, self.method)
        )

    def _certificate(self, folder: str, instance: Any, result: Result) -> Mapping[str, Any] | None:
        """What is known of a proof's certificate, or why there is none; of no proof ``None``."""
        if not is_proved(result):
            return None
        found = certified_into(folder, instance, result, limits=self.limits)
        return found.result.certificate or {"uncertified": found.uncertified}


def _methods(case: Case, inputs: str | None, limits: Limits) -> list[Method[Any, Any]]:
    """The case's methods, with `EVERY` spelled out and ``auto`` resolved (a row can be found again), and its plans."""
    instance = _load_case(case, inputs)
    family = family_of(instance)
    found: list[Method[Any, Any]] = []
    for name in case.methods:
        found += sane(family, instance) if name == EVERY else [pick(family, instance, limits, name, False)[0]]
    distinct = list({method.name: method for method in found}.values())
    return [*distinct, *plans_as_methods(family, case.plans, distinct)]


def with_losses(rows: Iterable[MeasuredRow]) -> list[MeasuredRow]:
    """The rows, each with its loss to what all rows of the same case and settings prove together."""
    found = list(rows)
    cases: dict[str, list[int]] = {}
    for index, row in enumerate(found):
        cases.setdefault(as_json([row.case, row.settings]), []).append(index)
    for indices in cases.values():
        own = losses([(found[index].objective, found[index].bound) for index in indices])
        for index, loss in zip(indices, own, strict=True):
            found[index] = replace(found[index], loss=loss)
    return found


def calibration_table(rows: Iterable[MeasuredRow], inputs: str | None = None) -> dict[str, Any]:
    """The table: of every method the fewest seconds for a predicted step in any of the rows that measured it.

    The fewest, as small instances are mostly overhead; runs that a limit ended count with the limit. So predictions err
    on the short side. Methods that predict nothing are left out, and so are runs that gave up for the instance's size,
    which did not take their steps.
    """
    rates: dict[str, list[float]] = {}
    found = list(rows)
    for row in found:
        if row.stop == Stop.SIZE_LIMIT:
            continue
        instance = _load_case(Case(row.case, row.settings), inputs)
        family = family_of(instance)
        effort = {method.name: method.effort for method in family.methods}.get(row.method, lambda _: 0.0)(instance)
        if effort > 0:  # those that users brought predict nothing
            rates.setdefault(f"{family.name}/{row.method}", []).append(row.seconds / effort)
    return {
        "date": max(row.date for row in found),
        "machine": found[0].machine,
        "seconds_per_step": {name: float(f"{min(each):.2g}") for name, each in sorted(rates.items())},
    }

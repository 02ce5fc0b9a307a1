"""Run several methods on one instance and compare what they claim."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from formulations.compiled.compile_times import compiling
from formulations.contract.family import Family, Method
from planner.files.destinations import writable
from planner.files.load import family_of, validate
from planner.files.settings import expect_types, method_options
from planner.files.write import plain, write_atomically
from planner.plugins.registry import functions_of
from planner.process import idle
from planner.process.errors import CrosscheckError, UsageError
from planner.process.versions import versions
from planner.results.check import exceeds
from planner.results.events import Listen
from planner.results.frames import to_frame
from planner.results.optimality_loss import optimum_of, with_losses
from planner.results.result import Result, html_table, summary
from planner.results.sentences import comparison_row
from planner.results.texts import columns, plural, with_unit
from planner.solving.backends import examine_solver
from planner.solving.certify import certified_into, why_uncertified
from planner.solving.choose import find_method
from planner.solving.solve import run, silent
from planner.types import Instance, Json, JsonObject
from solvers.outcome import Limits, Prover, Status, Stop

#: Methods that predict more elementary steps than this run only when named.
SANE_EFFORT = 1e9
#: Seconds for each method where the caller gives no limit.
DEFAULT_TIME_S = 60.0


@dataclass(frozen=True)
class Report:
    """The results of several methods on one instance.

    ``optimum`` is proved by the methods together (some verified plan meets some proved bound), else ``None``; every
    result has its ``loss`` to it, or to the best bound.
    ``uncertified`` says by method why a proof has no certificate; a proof of another method either has one, or none was
    requested and it can be tried. ``left_out`` says by method why it has no result. ``shares`` says by method what its
    proof has in common with others (`Method`).
    ``reproducer`` is the file written when they contradict each other.
    """

    problem: str
    instance: str
    results: tuple[Result, ...]
    contradictions: tuple[str, ...]
    optimum: float | None
    reproducer: str | None = None
    uncertified: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, str] = field(default_factory=dict)

    @property
    def agree(self) -> bool:
        """Whether no two claims exclude each other."""
        return not self.contradictions

    @property
    def proved(self) -> int:
        """How many methods hold a proof."""
        return sum(result.stop is Stop.PROVED for result in self.results)

    @property
    def independent_proofs(self) -> int:
        """How many of the methods' proofs do not rest on each other."""
        proofs = {_proof(result) for result in self.results if result.stop is Stop.PROVED}
        return len({self.shares.get(proof, proof) for proof in proofs})

    @property
    def signal(self) -> int | None:
        """The signal that interrupted the runs, if one did."""
        return next((result.signal for result in self.results if result.signal), None)

    def to_json(self) -> dict[str, Json]:
        """The object that ``planner crosscheck --json`` prints."""
        return {
            **{name: getattr(self, name) for name in ("problem", "instance", "agree", "optimum", "independent_proofs")},
            "contradictions": list(self.contradictions),
            "uncertified": dict(self.uncertified),
            "reproducer": self.reproducer,
            "results": [result.to_json() for result in self.results],
        }

    @property
    def agreement(self) -> str:
        """What follows where methods agree: the optimum, and how many proofs of it do not rest on each other."""
        others = f"{self.independent_proofs} independent" if self.proved > 1 else "no second one"
        count, unit = f"{plural(self.proved, 'proof')}, {others}", next((each.unit for each in self.results), "")
        return f"the methods agree; optimum {with_unit(self.optimum, unit)}; {count}"

    def to_frame(self) -> Any:
        """A data frame with a row for each method (`planner.to_frame`)."""
        return to_frame(map(summary, self.results))

    def __str__(self) -> str:
        """A row for each method, and what follows from them."""
        rows = [comparison_row(result, self.optimum is not None) for result in self.results]
        table = columns(list(rows[0]), [list(row.values()) for row in rows]) if rows else []
        said = [f"contradiction: {each}" for each in self.contradictions] or [self.agreement]
        return "\n".join([*table, *said])

    def _repr_html_(self) -> str:
        """A table for notebooks: a row for each method, and the contradictions."""
        return html_table([summary(result) for result in self.results]) + html_table(
            [{"contradiction": sentence} for sentence in self.contradictions]
        )


def crosscheck(
    instance: Instance,
    *,
    methods: Sequence[str] | None = None,
    plans: Mapping[str, str | JsonObject] | None = None,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    reproducers: str | None = "reproducers",
    certificates: str | None = None,
    listen: Listen | None = None,
    notice: Callable[[str], None] = silent,
    ended: Callable[[Result], None] = lambda _: None,
) -> Report:
    """Run methods one after the other and compare their plans, bounds and proofs.

    Parameters
    ----------
    instance
        From `planner.load`, or built from the classes in ``instances``.
    methods
        Names, or ``FILE.py:FUNCTION``; default: all that support the instance and predict at most ``SANE_EFFORT``
        steps, and those registered by `planner.method`.
    plans
        Plans that came from elsewhere, by the name of their row: a file, or the JSON form.
    limits
        For each method; default: a minute each.
    options
        Options of the methods; each takes its own.
    reproducers
        Folder for the file that reproduces a contradiction; ``None``: none is written.
    certificates
        Folder for the certificates of what is proved, and their instance; ``None``: none is made.
    listen, notice
        As for `planner.solve`.
    ended
        Called with each method's result when there is one.

    Raises
    ------
    InstanceError
        If the instance breaks a rule.
    UsageError
        If a method or option is unknown, a method is named twice, or an argument is of another type.
    """
    expect_types(plans=plans, limits=limits, options=options, reproducers=reproducers, certificates=certificates)
    expect_types(listen=listen, notice=notice, ended=ended)
    expect_methods(methods)
    instance = validate(instance)
    family = family_of(instance)
    limits = limits or Limits(time_s=DEFAULT_TIME_S)
    with compiling(notice), idle.kept(many=False):  # one notice for all methods, and one process of a user's
        family.load()
        chosen = [find_method(family, name) for name in methods] if methods is not None else sane(family, instance)
        chosen += plans_as_methods(family, plans or {}, chosen)
        given = method_options(chosen, options or {})
        examine_solver(chosen, limits)
        results, found, left_out = _run_each(family, chosen, instance, limits, given, listen, notice, ended)
    found += contradictions(results)
    without = {r.method: why_uncertified(family, instance, r) for r in results if is_proved(r)}
    if certificates is not None:
        for number, result in enumerate(results):
            if is_proved(result):
                proof = certified_into(certificates, instance, result, limits=limits)
                results[number], without[result.method] = proof.result, proof.uncertified
    report = Report(
        family.name,
        instance.name,
        tuple(with_losses(results)),
        tuple(found),
        optimum(results),
        uncertified={method: why for method, why in without.items() if why},
        left_out=left_out,
        shares={method.name: method.shares for method in chosen if method.shares},
    )
    if found and reproducers is not None:
        evidence = {**report.to_json(), "instance": family.to_json(instance)}
        try:
            report = replace(report, reproducer=write_reproducer(reproducers, evidence))
        except UsageError as unwritten:
            notice(f"no reproducer: {unwritten}")
    return report


def expect_methods(methods: Any) -> None:
    """Methods are named by a sequence of names, each once, or not at all (``None``); `UsageError` if they are not."""
    if methods is None:
        return
    if isinstance(methods, str | bytes) or not isinstance(methods, Sequence):
        raise UsageError.at("methods", methods, "a sequence of names, or None")
    if not methods:
        raise UsageError.at("methods", "empty", "one name or more")
    for place, name in enumerate(methods):
        if name in methods[:place]:
            raise UsageError.at("methods", ", ".join(map(str, methods)), f"{name} once")


def _run_each(
    family: Family[Any, Any],
    chosen: Sequence[Method[Any, Any]],
    instance: Any,
    limits: Limits,
    given: Mapping[str, Mapping[str, Any]],
    listen: Listen | None,
    notice: Callable[[str], None],
    ended: Callable[[Result], None],
) -> tuple[list[Result], list[str], dict[str, str]]:
    """The results of methods, what contradicts the definition, and why the others have none; a signal ends it."""
    results: list[Result] = []
    found: list[str] = []
    left_out: dict[str, str] = {}
    for method in chosen:
        missing = method.refusal(instance)
        if missing:
            notice(f"{method.name} is left out: {missing}")
            left_out[method.name] = missing
            continue
        try:
            results.append(run(family, method, instance, limits, given[method.name], listen=listen))
        except CrosscheckError as error:
            found.append(str(error))
            left_out[method.name] = str(error)
            continue
        except UsageError as refused:  # a solver of another version than the pinned one
            notice(f"{method.name} is left out: {refused}")
            left_out[method.name] = str(refused)
            continue
        ended(results[-1])
        if results[-1].signal:
            break
    return results, found, left_out


def plans_as_methods(
    family: Family[Any, Any], plans: Mapping[str, str | JsonObject], beside: Sequence[Method[Any, Any]] = ()
) -> list[Method[Any, Any]]:
    """Plans that came from elsewhere, as methods; `UsageError` for a name that a method ``beside`` them has."""
    from planner.plugins import methods

    for name in plans:
        if name in {method.name for method in beside}:
            raise UsageError.at("--plan", name, "a name that no other row has")
    return [methods.plan_as_method(family, name, plan) for name, plan in plans.items()]


def sane(family: Family[Any, Any], instance: Any) -> list[Method[Any, Any]]:
    """The methods that support the instance and predict at most `SANE_EFFORT`, and those registered for the process."""
    fitting = [
        method
        for method in family.methods
        if method.misfit(instance) is None and method.effort(instance) <= SANE_EFFORT
    ]
    return [*fitting, *(find_method(family, name) for name in functions_of(family.name))]


def contradictions(results: Sequence[Result]) -> list[str]:
    """Pairs of claims that cannot both be true, in words.

    Plans are verified, so a plan is a fact; what may be false is a bound above it or a proof that there is none.
    """
    found = []
    for claimant, witness in product(results, results):
        if witness.objective is None:
            continue
        plan = f"{witness.method} has a verified plan of {witness.objective!r} {witness.unit}".rstrip()
        if claimant.status is Status.INFEASIBLE:
            found.append(f"{claimant.method} calls the instance infeasible, but {plan}")
        elif claimant.bound is not None and exceeds(claimant.bound, witness.objective):
            found.append(f"{claimant.method} claims the lower bound {claimant.bound!r}, but {plan}")
    return found


def is_proved(result: Result) -> bool:
    """Whether the result's plan is optimal by its own bound, or it is proved that there is none."""
    return result.stop is Stop.PROVED or result.status is Status.OPTIMAL


def _proof(result: Result) -> str:
    """Whose proof a result rests on: a solver's or a search's is the method's own, bounds are all methods' together."""
    own = result.proved_by in (None, Prover.SEARCH, Prover.SOLVER)
    return result.method if own else str(result.proved_by)


def optimum(results: Sequence[Result]) -> float | None:
    """The least verified objective, if some method's bound proves it; else ``None``."""
    return optimum_of((result.objective, result.bound) for result in results)


def write_reproducer(folder: str, evidence: Mapping[str, Any]) -> str:
    """Write what shows a contradiction to a file that ``planner crosscheck`` reads; returns its path.

    ``evidence`` holds the ``instance`` in its JSON form and the ``contradictions`` in words. The name follows from
    these two, so that one contradiction found twice is one file.

    `UsageError` if it cannot be written.
    """
    content = plain({**evidence, "versions": versions()})
    key = json.dumps([content["instance"], content["contradictions"]])
    path = Path(folder) / f"{content['problem']}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    with writable(folder, "--reproducer-dir"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content, indent=1) + "\n", "--reproducer-dir")
    return str(path)

"""``solve --compare``: the paper's method next to the exact one, and by how much it is worse."""

from collections.abc import Callable, Mapping
from typing import Any

from formulations.compiled.compile_times import compiling
from formulations.contract.family import Claim, Family, Method
from planner.files.load import family_of
from planner.plugins.method_names import AUTO, PORTFOLIO
from planner.process.errors import CrosscheckError
from planner.results.events import Listen
from planner.results.optimality_loss import with_losses
from planner.results.result import Result
from planner.solving.choose import find_method
from planner.solving.compare import contradictions, plans_as_methods
from planner.solving.solve import run, silent, solve
from planner.types import JsonObject
from solvers.outcome import Limits


def solve_beside(
    instance: Any,
    plans: Mapping[str, str | JsonObject],
    *,
    method: str = AUTO,
    exact: bool = False,
    limits: Limits,
    options: Mapping[str, Any],
    listen: Listen | None = None,
    notice: Callable[[str], None] = silent,
) -> list[Result]:
    """The result of a method, then the one to compare it with, then those of plans from elsewhere; all with losses.

    Beside a heuristic that is named runs whatever proves the optimum. Beside anything else (where nothing is named, an
    exact method) runs the paper's: the first heuristic of the listing that takes the instance, if there is one.

    ``plans``: files or JSON forms of plans, by the names of their rows.
    ``method``, ``exact``, ``limits``, ``options``, ``listen``, ``notice``: as for `planner.solve`; the paper's method
    has those of the options that are its own.
    `InstanceError`, `UsageError`, `CrosscheckError` as of `planner.solve`; also if a bound of one lies above a plan of
    another.
    """
    family = family_of(instance)
    others = plans_as_methods(family, plans)
    chosen = None if method in (AUTO, PORTFOLIO) else find_method(family, method)
    common = Limits(limits.time_s, limits.gap, limits.seed, limits.threads)  # a solver is chosen for the first alone
    listening: dict[str, Any] = {"listen": listen, "notice": notice}
    if chosen is not None and chosen.claim is Claim.HEURISTIC:
        found = [solve(instance, method=method, exact=exact, limits=limits, options=options, **listening)]
        if not found[0].signal:
            found.append(solve(instance, exact=True, limits=common, **listening))
    else:
        with compiling(notice):
            family.load()
            paper = papers_method(family, instance)
        known = () if paper is None else {option.name.replace("-", "_") for option in paper.options}
        own = {name: options[name] for name in options if name.replace("-", "_") in known}
        rest = {name: value for name, value in options.items() if name not in own}
        found = [solve(instance, method=method, exact=True, limits=limits, options=rest, **listening)]
        if paper is None:
            notice(f"no heuristic of {family.name} takes the instance: there is nothing to compare")
        elif not found[0].signal:
            found.append(solve(instance, method=paper.name, limits=common, options=own, **listening))
    if not found[-1].signal:
        found += [run(family, other, instance, common, {}) for other in others]
    wrong = contradictions(found)
    if wrong:
        evidence = {"problem": family.name, "instance": family.to_json(instance)}
        raise CrosscheckError("; ".join(wrong), {**evidence, "results": [result.to_json() for result in found]})
    return with_losses(found)


def papers_method(family: Family[Any, Any], instance: Any) -> Method[Any, Any] | None:
    """The first heuristic, as the family lists them, that takes the instance; ``None``: there is none."""
    heuristics = (method for method in family.methods if method.claim is Claim.HEURISTIC)
    return next((method for method in heuristics if method.refusal(instance) is None), None)

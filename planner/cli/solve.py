"""The commands on one instance and its plans: ``solve``, ``check`` and ``diff``."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from planner.cli.common import (
    READING,
    Inputs,
    Instance,
    Method,
    Plans,
    Reading,
    Search,
    Topology,
    load_instance,
    plans_of,
)
from planner.cli.declared import argument, flag, option
from planner.cli.for_trainer import Trainer, answered
from planner.cli.outputs import Certificate, Full, Outputs, Solved, Verbose
from planner.files.choices import split
from planner.files.destinations import refuse_outputs
from planner.files.read import STANDARD
from planner.process.errors import UsageError

Minimise = Annotated[str | None, option("AMOUNT", "devices, memory or time (the default)")]


def solve_command(
    instance: Instance,
    exact: Annotated[bool, flag("--exact", "prove optimality")] = False,
    method: Method = "auto",
    portfolio: Annotated[bool, flag("--portfolio", "exact search and model at once")] = False,
    compare: Annotated[bool, flag("--compare", "run the paper's method as well")] = False,
    plan: Plans = None,
    search: Search = Search(),
    outputs: Outputs = Outputs(),
    topology: Topology = None,
    certificate: Certificate = None,
    full: Full = False,
    verbose: Verbose = False,
    inputs: Inputs = None,
    trainer: Trainer = None,
    minimise: Minimise = None,
    **settings: Any,
) -> None:
    """Find a plan; --exact proves it optimal, otherwise its gap is reported."""
    from planner.analysis.least import TIME, solve_least, split_bounds
    from planner.solving.solve import solve

    if portfolio and method != "auto":
        raise UsageError.at("--method", method, "none with --portfolio")
    method = "portfolio" if portfolio else method
    outputs = replace(outputs, certificate=certificate, full=full, verbose=verbose)
    outputs.refuse(search.solver_log, instance, *([] if topology is None else [topology]))
    limits = search.limits()
    overrides, options = split(settings)
    bounds, overrides["require"] = split_bounds(overrides.get("require") or [])
    is_least = minimise is not None or bool(bounds)
    beside = {
        "--compare": compare,
        "--plan": plan,
        "--for": trainer,
        "--certificate": certificate,
        "--events": outputs.events,
    }
    for name, value in beside.items():
        if is_least and value:
            raise UsageError.at(name, value, "none with --minimise, or with bounds on time, memory or devices")
    declared = load_instance(instance, overrides, inputs, topology)
    outputs.announce(declared)

    def work(arguments: dict[str, Any]) -> Solved:
        if is_least:
            given = {name: arguments[name] for name in ("method", "options", "notice", "limits")}
            return Solved(solve_least(declared, minimise or TIME, bounds, **given), declared)
        if not compare and not plan:
            found = Solved(solve(declared, **arguments), declared)
            return found if trainer is None else answered(found, trainer, instance, overrides, outputs.out, limits)
        from planner.analysis.compare_with_paper import solve_beside

        result, *others = solve_beside(declared, plans_of(plan), **arguments)
        return Solved(result, declared, others=others)

    outputs.run(work, {"method": method, "exact": exact, "limits": limits, "options": options})


def check_command(
    instance: Instance,
    plan: Annotated[str, argument("PLAN.json", "from solve --out or solve --json")],
    topology: Topology = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Check a plan against the definition of the problem; exit 1 if it breaks a rule."""
    from planner.display.tables import show_verdict
    from planner.results.check import check, other_settings, read_plan

    if plan == instance == STANDARD:
        raise UsageError.at("PLAN", plan, "a file: INSTANCE is standard input")
    declared = view.load(instance, settings, topology)
    content = read_plan(plan)
    verdict = check(declared, content, where=plan)
    if content.get("problem", verdict.problem) != verdict.problem:
        view.note(f"warning: {plan} is a plan of {content['problem']}; checked as one of {verdict.problem} (--problem)")
    else:
        for other in other_settings(declared, content, plan):
            view.note(f"note: {other}")
    view.show(verdict, show_verdict)
    if content.get("bound") is not None:
        view.note(f"only the plan was checked; the bound that {plan} claims needs a certificate (planner verify)")
    raise typer.Exit(0 if verdict.feasible else 1)


def diff_command(
    plan_a: Annotated[str, argument("PLAN_A", "from solve --out or solve --json")],
    plan_b: Annotated[str, argument("PLAN_B", "the one to compare with it")],
    instance: Instance,
    picture: Annotated[str | None, option("FILE.png|svg", "draw both plans", "--plot")] = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Compare two plans of an instance: what differs, by layer and by stage, and what it costs."""
    from planner.analysis.difference import diff
    from planner.display.differences import panels, show_difference
    from planner.display.plots.files import require_drawable, save
    from planner.results.check import read_plan

    refuse_outputs({"--plot": picture}, instance)
    require_drawable(picture)
    declared = view.load(instance, settings)
    found = diff(read_plan(plan_a), read_plan(plan_b), declared, where=(plan_a, plan_b))
    drawn = [] if picture is None else panels(found)
    view.show(found, show_difference)
    if picture is not None:
        save(drawn, picture)

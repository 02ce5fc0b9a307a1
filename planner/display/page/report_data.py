"""What the page is made of: the runs of all methods on an instance, a certificate, and commands to repeat them."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.figures.plan_figures import Heat
from planner.analysis.frontier import MORE_DEVICES, by_memory
from planner.analysis.with_topology import load_placed
from planner.files.choices import split
from planner.files.load import load
from planner.files.settings import as_typed
from planner.results.events import Event, EventFile, Listen
from planner.results.result import Result
from planner.solving.certify import Certification, certify
from planner.solving.compare import Report, crosscheck, is_proved
from planner.solving.solve import silent
from solvers.outcome import OPTIMAL_GAP, Limits

#: The method whose table has the optima of other devices, too; tables are made where its own took this long at most.
_TABLE, _CHEAP_S = "piper-exact-knapsack", 2.0
#: All tables together may take so long.
_TABLES_S = 10 * _CHEAP_S


@dataclass(frozen=True)
class Material:
    """One instance with everything that its methods found; ``commands`` repeat it, ``checks`` check the certificate.

    ``frontier`` is the table of optima by devices and memory, fewer and more than its own, where it is cheap; where it
    is not, ``no_frontier`` says so in a sentence. ``frontier_command`` makes it; empty where nothing can.
    """

    instance: Any
    report: Report
    events: Sequence[Event]
    left_out: Sequence[str]
    proof: Certification | None
    commands: Sequence[str]
    checks: Sequence[str]
    frontier: Heat | None = None
    no_frontier: str = ""
    frontier_command: str = ""

    @property
    def best(self) -> Result | None:
        """The result with the best plan, the quickest of equal ones."""
        found = [result for result in self.report.results if result.objective is not None]
        return min(found, key=lambda result: (result.objective, result.seconds), default=None)


def material(
    name: str,
    settings: Mapping[str, Any],
    *,
    methods: Sequence[str] | None = None,
    plans: Mapping[str, str] | None = None,
    limits: Limits,
    inputs: str | None = None,
    topology: str | None = None,
    listen: Listen | None = None,
    notice: Callable[[str], None] = silent,
) -> Material:
    """Run the methods on one instance.

    ``name``, ``settings``: as the command line gives them: a file or catalog name, overrides and options by name.
    ``methods``, ``plans``, ``limits``, ``inputs``, ``listen``, ``notice``: as for `planner.crosscheck` and
    `planner.load`.
    ``topology``: the network on which an operator graph is placed as well, as for `planner solve`.
    """
    overrides, options = split(settings)
    if topology is None:
        instance = load(name, inputs=inputs, **overrides)
    else:
        instance = load_placed(name, topology, inputs=inputs, overrides=overrides)
        settings = {**settings, "topology": topology}
    log, left_out = EventFile(None, listen), []

    def keep_left_out(line: str) -> None:
        if "is left out" in line:
            left_out.append(line)
        notice(line)

    report = crosscheck(
        instance,
        methods=methods,
        plans=plans,
        limits=limits,
        options=options,
        reproducers=None,
        listen=log.listen,
        notice=keep_left_out,
        ended=log.end,
    )
    proof = _certification(instance, report, limits)
    table, missing = _frontier(instance, report, limits)
    is_certified = proof is not None and proof.content is not None
    return Material(
        instance,
        report,
        log.events,
        left_out,
        proof,
        _commands(name, settings, limits, inputs, report, plans or {}),
        _checks(name, settings, limits, inputs, proof.result.method) if proof is not None and is_certified else [],
        table,
        missing,
        _frontier_command(name, settings, inputs) if table is not None or missing else "",
    )


def _frontier(instance: Any, report: Report, limits: Limits) -> tuple[Heat | None, str]:
    """The optima for fewer and more devices and memory, if the table that proved the instance's own took no time.

    Else why there are none, as far as there could be any: the method ran, and its table takes the instance.
    """
    method = next((result for result in report.results if result.method == _TABLE), None)
    if method is None or instance.requirements or report.signal:
        return None, ""
    if not is_proved(method):
        return None, f"The optima by devices and memory are not shown: {_TABLE} did not end within its limit here."
    if method.seconds > _CHEAP_S:
        took = f"{_TABLE} took {method.seconds:.3g} s here, and they need a run for each memory"
        return None, f"The optima by devices and memory are not shown: {took}."
    found = by_memory(instance, limits=replace(limits, time_s=_TABLES_S))
    if found.times:
        return found.heat, ""
    why = "the run was interrupted" if found.signal else f"they were not known within {_TABLES_S:g} s"
    return None, f"The optima by devices and memory are not shown: {why}."


def _frontier_command(name: str, settings: Mapping[str, Any], inputs: str | None) -> str:
    overrides, _ = split(settings)
    where = [] if inputs is None else ["--inputs", inputs]
    more = ["--more-devices", str(MORE_DEVICES)]
    return shlex.join(["planner", "frontier", name, *as_typed(overrides), *more, *where])


def _certification(instance: Any, report: Report, limits: Limits) -> Certification | None:
    """The certificate of a proof, if there is one; of no proof `None`."""
    proved = [result for result in report.results if is_proved(result)]
    found = None
    for result in sorted(proved, key=lambda result: result.method in report.uncertified):
        found = certify(instance, result, limits=limits)
        if found.content is not None:
            break
    return found


def _commands(
    name: str, settings: Mapping[str, Any], limits: Limits, inputs: str | None, report: Report, plans: Mapping[str, str]
) -> list[str]:
    given, more = as_typed(settings), _limits(limits, inputs)
    if limits.gap != OPTIMAL_GAP:
        more += ["--gap", f"{limits.gap:g}"]
    methods = [result.method for result in report.results if result.method not in plans]
    entered = [word for plan, file in plans.items() for word in ("--plan", f"{plan}={file}")]
    command = "report" if "topology" in settings else "crosscheck"
    head = ["planner", command, name, *given, "--methods", ",".join(methods), *entered, *more]
    each = [["planner", "solve", name, *given, "--method", method, *more] for method in methods]
    return [shlex.join(command) for command in (head, *each)]


def _checks(name: str, settings: Mapping[str, Any], limits: Limits, inputs: str | None, method: str) -> list[str]:
    """The commands that write a certificate and check it; of what is placed on a network, the one that writes it."""
    if "topology" in settings:
        placing = ["planner", "solve", name, *as_typed(settings), "--method", method, *_limits(limits, inputs)]
        return [shlex.join([*placing, "--certificate", "certificate.json"])]
    more = [*_limits(limits, inputs), "--out", "certificate.json"]
    overrides, _ = split(settings)
    where = [] if inputs is None else ["--inputs", inputs]
    certifying = ["planner", "certify", name, *as_typed(settings), "--method", method, *more]
    verifying = ["planner", "verify", name, "certificate.json", *as_typed(overrides), *where]
    return [shlex.join(command) for command in (certifying, verifying)]


def _limits(limits: Limits, inputs: str | None) -> list[str]:
    more = ["--seed", str(limits.seed), "--threads", str(limits.threads)]
    if inputs is not None:
        more += ["--inputs", inputs]
    if limits.time_s is not None:
        more += ["--time-limit", f"{limits.time_s:g}"]
    return more

"""One self-contained page about an instance: every method, gaps, pictures, versions and the commands to repeat it."""

from __future__ import annotations

import base64
import importlib.util
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.certificates import Certification, certify, why_uncertified
from planner.comparison import Report, crosscheck, is_proved, optimum
from planner.errors import UsageError
from planner.events import EventFile, Listen
from planner.inputs.choices import split
from planner.inputs.files import plain
from planner.inputs.loading import family_of, load
from planner.losses import shown
from planner.result import Result
from planner.run import silent
from planner.show.names import names_of_nodes, with_names
from planner.show.pictures import losses_of
from planner.show.plots.charts import gap_over_time
from planner.show.plots.panel import Panel
from planner.show.plots.panels import panels
from planner.show.tables import brief, facts, is_rows, number, percent, plan_file, size, unfolded, with_unit
from planner.show.terminal import printable
from planner.versions import machine, today, versions
from solvers.outcome import OPTIMAL_GAP, Limits, Status, Stop

_COLUMNS = (
    *("method", "loss", "own gap", "objective", "bound"),
    *("claim", "status", "stop", "proved by", "seconds", "solver"),
)


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the text it is sorted by (empty: absent)."""

    text: str
    value: str


def require_page() -> None:
    """`UsageError` if what draws and writes the page is not installed."""
    missing = [name for name in ("matplotlib", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"planner report needs {' and '.join(missing)}: pip install 'dnn-planner[report]'")


def page(
    name: str,
    settings: Mapping[str, Any],
    *,
    methods: Sequence[str] | None = None,
    plans: Mapping[str, str] | None = None,
    limits: Limits,
    inputs: str | None = None,
    listen: Listen | None = None,
    notice: Callable[[str], None] = silent,
) -> tuple[str, Report]:
    """Run the methods on an instance and write the page about it.

    Parameters
    ----------
    name, settings
        As the command line gives them: a file or catalog name, overrides and options by name.
    methods, plans, limits, inputs, listen, notice
        As for `planner.crosscheck` and `planner.load`.

    Returns
    -------
    page, report
        HTML text that needs no network, and what it was made of.
    """
    require_page()
    overrides, options = split(settings)
    instance = load(name, inputs=inputs, **overrides)
    log, left_out = EventFile(None, listen), []

    def noticed(line: str) -> None:
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
        notice=noticed,
        ended=log.end,
    )
    commands = _commands(name, settings, limits, inputs, report, plans or {})
    proof = _certification(instance, report, limits)
    checks = [] if proof is None else _checks(name, settings, limits, inputs, proof.result.method)
    return _rendered(instance, report, log, left_out, limits, commands, proof, checks), report


def _certification(instance: Any, report: Report, limits: Limits) -> Certification | None:
    """The certificate of a proof, if there is one; of no proof `None`."""
    proved = [result for result in report.results if is_proved(result)]
    found = None
    for result in sorted(proved, key=lambda result: result.method in report.uncertified):
        found = certify(instance, result, limits=limits)
        if found.content is not None:
            break
    return found


def _rendered(
    instance: Any,
    report: Report,
    log: EventFile,
    left_out: list[str],
    limits: Limits,
    commands: list[str],
    proof: Certification | None,
    checks: list[str],
) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    family = family_of(instance)
    best = _best(report)
    template = Environment(
        loader=PackageLoader("planner"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_visible,
    ).get_template("report.html")
    text: str = template.render(
        report=report,
        figures=facts(plain(family.describe(instance))),
        warnings=family.warnings(instance),
        verdict=_verdict(report, best),
        columns=_COLUMNS,
        rows=[_cells(result, report.optimum is not None) for result in report.results],
        remarks=[*(f"{result.method}: {result.reason}" for result in report.results if result.reason), *left_out],
        pictures=_pictures(instance, best, log, report),
        best=best,
        parts=[] if best is None else list(_parts(with_names(best.plan or {}, names_of_nodes(instance)))),
        plan="" if best is None else plan_file(best),
        certificate=_certified(proof),
        checks=checks if proof is not None and proof.content is not None else [],
        commands=commands,
        seed=limits.seed,
        threads=limits.threads,
        time_limit="none" if limits.time_s is None else f"{limits.time_s:g} s",
        made=today(),
        machine=machine(),
        versions=versions(),
    )
    return text


def _visible(value: Any) -> Any:
    r"""A text of which every line is printable; anything else as it is.

    >>> _visible("two\n\u202elines"), _visible(2)
    ('two\n\\u202elines', 2)
    """
    return "\n".join(map(printable, value.split("\n"))) if isinstance(value, str) else value


def _best(report: Report) -> Result | None:
    found = [result for result in report.results if result.objective is not None]
    return min(found, key=lambda result: (result.objective, result.seconds), default=None)


def _verdict(report: Report, best: Result | None) -> str:
    """What is known now, in one sentence."""
    if any(result.status is Status.INFEASIBLE for result in report.results):
        return "Proved: no plan is feasible."
    if best is None:
        return "No plan was found, and nothing was proved."
    value = with_unit(best.objective, best.unit)
    if optimum(report.results) is not None:
        return f"Proved optimal: {value}."
    bounds = [result.bound for result in report.results if result.bound is not None]
    if not bounds:
        return f"The best plan found takes {value}; no bound is known."
    return f"The best plan found takes {value}; no plan takes less than {with_unit(max(bounds), best.unit)}."


def _certified(proof: Certification | None) -> str:
    """What the page says of the certificate."""
    if proof is None:
        return "Nothing was proved, so there is nothing to certify."
    if proof.content is None:
        return f"Uncertified: {why_uncertified(proof.result)}."
    figures: Mapping[str, Any] = proof.result.certificate or {}
    return (
        f"The proof of {proof.result.method} has a certificate of the kind {figures['kind']}, "
        f"{size(figures['bytes'])}, made in {figures['seconds']:.2g} s. These commands write it, and "
        "check it with exact numbers and no solver:"
    )


def _cells(result: Result, is_proved: bool) -> list[Cell]:
    whose = str(result.proved_by) if result.proved_by and result.stop is Stop.PROVED else ""
    figures = [
        (shown(result.loss, is_proved), result.loss),
        (percent(result.gap), result.gap),
        *((number(value), value) for value in (result.objective, result.bound)),
        *((word, word) for word in (result.claim, result.status.value, result.stop.value, whose)),
        (f"{result.seconds:.4g}", result.seconds),
        (result.solver, result.solver),
    ]
    return [Cell(result.method, result.method), *(Cell(text, _sortable(value)) for text, value in figures)]


def _sortable(value: float | str | None) -> str:
    """What a column is sorted by."""
    return "" if value is None else value if isinstance(value, str) else repr(value)


def _parts(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a plan; a plan in phases has parts of parts."""
    for name, part in plan.items():
        if isinstance(part, Mapping) and any(isinstance(value, list) for value in part.values()):
            yield from _parts({f"{name}, {inner}": value for inner, value in part.items()})
        else:
            yield _part(name, part)


def _part(name: str, part: Any) -> dict[str, Any]:
    """A part of a plan: lists of objects with equal keys as a table, anything else as a line."""
    if isinstance(part, Sequence) and part and all(isinstance(row, Mapping) for row in part):
        columns, rows = unfolded(part)
        return {"name": name, "columns": columns, "rows": rows}
    if is_rows(part):
        return {"name": name, "columns": ["#", ""], "rows": [[str(i), brief(row)] for i, row in enumerate(part)]}
    return {"name": name, "rows": [], "text": brief(part)}


def _pictures(instance: Any, best: Result | None, log: EventFile, report: Report) -> list[dict[str, str]]:
    family = family_of(instance)
    drawn = []
    if any(result.loss is not None for result in report.results):
        drawn.append(losses_of(report))
    if best is not None and best.plan is not None:
        drawn += panels(instance, family.plan_from_json(instance, best.plan))
    if any(event.objective is not None or event.bound is not None for event in log.events):
        unit = family.unit(instance)
        title = "Incumbents (falling) and proved bounds (rising) of every method"
        drawn.append(Panel(title, lambda axes: gap_over_time(axes, log.events, unit)))
    return [{"title": panel.title, "source": _source(panel)} for panel in drawn]


def _source(panel: Panel) -> str:
    """The picture as a data address: names inside one picture cannot meet those of another."""
    from planner.show.plots.files import svg

    return "data:image/svg+xml;base64," + base64.b64encode(svg(panel).encode()).decode()


def _commands(
    name: str,
    settings: Mapping[str, Any],
    limits: Limits,
    inputs: str | None,
    report: Report,
    plans: Mapping[str, str],
) -> list[str]:
    given, more = _words(settings), _limits(limits, inputs)
    if limits.gap != OPTIMAL_GAP:
        more += ["--gap", f"{limits.gap:g}"]
    methods = [result.method for result in report.results if result.method not in plans]
    entered = [word for plan, file in plans.items() for word in ("--plan", f"{plan}={file}")]
    head = ["planner", "crosscheck", name, *given, "--methods", ",".join(methods), *entered, *more]
    each = [["planner", "solve", name, *given, "--method", method, *more] for method in methods]
    return [shlex.join(command) for command in (head, *each)]


def _checks(name: str, settings: Mapping[str, Any], limits: Limits, inputs: str | None, method: str) -> list[str]:
    """The commands that write a certificate and check it."""
    more = [*_limits(limits, inputs), "--out", "certificate.json"]
    overrides, _ = split(settings)
    where = [] if inputs is None else ["--inputs", inputs]
    certifying = ["planner", "certify", name, *_words(settings), "--method", method, *more]
    verifying = ["planner", "verify", name, "certificate.json", *_words(overrides), *where]
    return [shlex.join(command) for command in (certifying, verifying)]


def _words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as they are typed."""
    given: list[str] = []
    for setting, value in settings.items():
        if value is not None and value is not False:
            given += [f"--{setting.replace('_', '-')}", *([] if value is True else [str(value)])]
    return given


def _limits(limits: Limits, inputs: str | None) -> list[str]:
    """Limits and the folder of inputs as they are typed."""
    more = ["--seed", str(limits.seed), "--threads", str(limits.threads)]
    if inputs is not None:
        more += ["--inputs", inputs]
    if limits.time_s is not None:
        more += ["--time-limit", f"{limits.time_s:g}"]
    return more


def page_path(out: str) -> Path:
    """Where the page goes; `UsageError` unless it is a file FILE.html."""
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise UsageError.at("--out", out, "a file FILE.html")
    return Path(out)

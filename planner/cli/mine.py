"""The command that searches for counter-examples: ``mine``."""

import os
from collections.abc import Iterable
from typing import Annotated, Any

from planner.cli import completion
from planner.cli.common import NO_PROOF, NOTES, Notes, Reproducers, Search, leave, share_of
from planner.cli.declared import argument, option
from planner.process.errors import CrosscheckError, UsageError


def mine_command(
    method: Annotated[str, argument("METHOD", "a name, or FILE.py:FUNCTION", complete=completion.methods)],
    out: Annotated[str, option("FILE", "the instance; plans and certificate next to it")],
    against: Annotated[
        str | None, option("EXACT", "whose optima are the measure: exact", complete=completion.methods)
    ] = None,
    problem: Annotated[
        str | None, option("NAME", "default: the first with both methods", complete=completion.problems)
    ] = None,
    max: Annotated[list[str] | None, option("KEY=N,...", "the largest instances, such as nodes=4,devices=4")] = None,
    loss: Annotated[
        str | None, option("5%|no-plan", "the smallest instance with so much; default: the worst loss")
    ] = None,
    domain: Annotated[list[str] | None, option("NAME[=V]", "only instances of this kind; may be repeated")] = None,
    time_limit: Annotated[float | None, option("SECONDS", "of the search; default: 60")] = None,
    count: Annotated[int | None, option("N", "evaluations at most", min=1)] = None,
    seed: Annotated[int, option("N", "seed of the search")] = 0,
    view: Notes = NOTES,
    reproducer_dir: Reproducers = "reproducers",
    **settings: Any,
) -> None:
    """Search for the smallest instance on which a method loses so much, or on which it loses most."""
    from planner.cli.outputs import with_reproducer
    from planner.display.mining import progress, show
    from planner.experiments.mining.files import files_of, writes
    from planner.experiments.mining.mine import DEFAULT_TIME_S, choose_problem, mine
    from planner.files.destinations import refuse_overwriting
    from planner.files.write import write_all
    from planner.process.signals import defer

    family, against = choose_problem(method, against, problem)
    if out.startswith("/dev/") or (os.path.exists(out) and not os.path.isfile(out)):
        raise UsageError.at("--out", out, "a file, next to which the plans get files of their own")
    files = files_of(out, method, against)
    for name in files:
        refuse_overwriting(name)
    if time_limit is None and count is None:
        time_limit = DEFAULT_TIME_S
    with defer():
        try:
            with progress(view.quiet, method, against) as listen:
                found = mine(
                    method,
                    against=against,
                    problem=family.name,
                    most=_values("--max", ",".join(max or ()).split(",") if max else (), "KEY=N, each key once", True),
                    loss=_loss(loss),
                    domains=_values("--domain", domain or (), "each domain once"),
                    limits=Search(time_limit, seed=seed).limits(),
                    count=count,
                    options={name: value for name, value in settings.items() if value not in (None, False)},
                    listen=listen,
                    notice=view.note,
                )
        except CrosscheckError as error:
            raise with_reproducer(error, reproducer_dir, view.json) from error
        written, certificate = writes(found, files)
        view.show(found.to_json(out, certificate), lambda _: show(found, files, certificate))
    write_all(*written)
    leave(found.signal, NO_PROOF if found.instance is None else 0)


def _values(option: str, given: Iterable[str], rule: str, needed: bool = False) -> dict[str, str | None]:
    """Values by name; ``None`` for a name without one, unless they are ``needed``."""
    found: dict[str, str | None] = {}
    for each in given:
        name, sign, value = each.strip().partition("=")
        if name in found or (needed and not (name and sign)):
            raise UsageError.at(option, each, rule)
        found[name] = value if sign else None
    return found


def _loss(text: str | None) -> float | str | None:
    """A share, as "5%" or 0.05; `UsageError` for one below 0 or not finite."""
    from planner.experiments.mining.mine import NO_PLAN

    if text is None or text == NO_PLAN:
        return text
    return share_of("--loss", text, f"a share such as 5% or 0.05, or {NO_PLAN}")

"""The commands around the instances: ``list``, ``make``, ``schema``, ``doctor`` and ``reproduce``."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import READING, VIEW, Certify, Out, Reading, View, deliver
from planner.cli.declared import argument, flag
from planner.cli.outputs import Full
from planner.files import choices
from planner.files.destinations import refuse_outputs, refuse_overwriting
from planner.files.load import catalog, family_of, load
from planner.files.write import as_json
from planner.process.errors import UsageError


def list_command(
    name: Annotated[
        str | None,
        argument(
            "PROBLEM|INSTANCE",
            "one problem, with its options; or which methods take an instance",
            complete=completion.names_to_list,
        ),
    ] = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """List problems, methods, instances and versions; of an instance, which methods take it and why others do not."""
    from planner.display.listing import listing, listing_of, show_fitting, show_listing, show_problem
    from planner.files.settings import UnknownSettingError

    given = {key: value for key, value in settings.items() if value is not None and value is not False}
    if name is None:
        name = given.pop("problem", None)
    if name is not None and not choices.find_families(name):
        found = listing_of(name, inputs=view.inputs, notice=view.note, **given)
        show = show_fitting
    elif given:
        raise UnknownSettingError.of(next(iter(given)).replace("_", "-"), (), f"planner list {name or ''}".rstrip())
    else:
        found = listing(catalog(), name)
        show = show_listing if name is None else show_problem
    view.show(found, show)


def make_command(
    name: Annotated[
        str, argument("NAME|method|template", "catalog name, or a blank", complete=completion.names_to_make)
    ],
    of: Annotated[
        str | None, argument("PROBLEM", "of the method or the template", complete=completion.problems)
    ] = None,
    out: Out = None,
    **settings: Any,
) -> None:
    """Write an instance as JSON, a small one of a problem to edit, or a blank for a method of yours as Python."""
    blanks = (completion.METHOD, completion.TEMPLATE)
    if name not in catalog() and name not in blanks:
        raise UsageError.unknown("NAME", name, [*catalog(), *blanks])
    if out is not None:
        refuse_overwriting(out)
    if name in blanks:
        text = _blank(name, of, out, settings)
    elif of is not None:
        raise UsageError.at("PROBLEM", of, "nothing behind the name of an instance")
    else:
        loaded = load(name, **settings)
        text = as_json(family_of(loaded).to_json(loaded))
    deliver(text + "\n", out)


def _blank(name: str, of: str | None, out: str | None, settings: dict[str, Any]) -> str:
    """The text of `planner make method PROBLEM`, or of a template; a file that is there may be somebody's work."""
    from planner.files.settings import UnknownSettingError
    from planner.plugins.blank import blank, template

    given = next((name for name, value in settings.items() if value not in (None, False, [])), None)
    if given is not None:
        raise UnknownSettingError.of(given.replace("_", "-"), (), f"planner make {name}")
    if of is None:
        raise UsageError.at("PROBLEM", "nothing", "a problem of planner list")
    if out is not None and Path(out).is_file():
        raise UsageError.at("--out", out, "a file that is not there yet")
    return (blank if name == completion.METHOD else template)(of).rstrip("\n")


def schema_command(
    problem: Annotated[str, argument("PROBLEM", "such as stage_partitioning", complete=completion.problems)],
    out: Out = None,
) -> None:
    """Print the format of a problem's instance files as JSON Schema, for editors and validators."""
    import json

    from planner.files.schema import schema

    refuse_outputs({"--out": out})
    deliver(json.dumps(schema(problem), indent=1) + "\n", out)


def doctor_command(
    compiling: Annotated[bool, typer.Option("--compile", help="compile all kernels first, on all cores")] = False,
    view: View = VIEW,
) -> None:
    """Check the installation: versions, small models, which kernels are compiled; exit 1 if a check fails."""
    from planner.display.listing import show_findings
    from planner.process.installation import examine

    findings = examine(compiling=compiling)
    healthy = all(found.healthy for found in findings)
    view.show({"healthy": healthy, "findings": [vars(each) for each in findings]}, lambda _: show_findings(findings))
    raise typer.Exit(0 if healthy else 1)


def reproduce_command(
    claim: Annotated[str | None, argument("CLAIM", "a name from --list", complete=completion.claims)] = None,
    list_: Annotated[bool, flag("--list", "list the claims")] = False,
    certify: Certify = None,
    full: Full = False,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Examine a claim of a paper: the verdict, what it prints, what is found here, and the optimum."""
    from planner.display.reproduction import show_claims, show_reproduction
    from planner.reproduction.reproduce import claims_listing, reproduce

    if list_:
        listed = claims_listing()
        view.show(listed, show_claims)
        return
    if claim is None:
        raise UsageError.at("CLAIM", "nothing", "a name from planner reproduce --list")
    given = {name: value for name, value in settings.items() if value is not None and value is not False}
    found = reproduce(claim, inputs=view.inputs, certify=certify, note=view.note, **given)
    view.show(found, partial(show_reproduction, full=full))

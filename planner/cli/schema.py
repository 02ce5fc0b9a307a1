"""The command on formats: ``schema``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import completion
from planner.cli.common import Out, deliver


def schema_command(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="such as stage_partitioning", autocompletion=completion.problems)
    ],
    out: Out = None,
) -> None:
    """Print the format of a problem's instance files as JSON Schema, for editors and validators."""
    import json

    from planner.files.destinations import refuse_outputs
    from planner.files.schema import schema

    refuse_outputs({"--out": out})
    deliver(json.dumps(schema(problem), indent=1) + "\n", out)

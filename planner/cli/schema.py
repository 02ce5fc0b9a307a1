"""The command on formats: ``schema``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import completion


def schema_command(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="such as stage_partitioning", autocompletion=completion.problems)
    ],
    out: Annotated[str | None, typer.Option(metavar="FILE", help="where to write it (default: stdout)")] = None,
) -> None:
    """Print the format of a problem's instance files as JSON Schema, for editors and validators."""
    import json

    from planner.files.destinations import refuse_outputs
    from planner.files.schema import schema
    from planner.files.write import write_atomically

    refuse_outputs({"--out": out})
    text = json.dumps(schema(problem), indent=1)
    if out is None:
        print(text)
    else:
        write_atomically(out, text + "\n")

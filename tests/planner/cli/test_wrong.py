"""Command lines that typer refuses: one line in the words of every other error."""

from __future__ import annotations

import pytest

from planner.cli import app
from planner.cli.app import main


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["solve", "chain8", "--seed", "1.5"], "--seed is '1.5'; expected a valid integer\n"),
        (["solve", "chain8", "--time-limit", "long"], "--time-limit is 'long'; expected a valid number"),
        (["validate", "chain8", "--out", "x", "--count", "0"], "--count is '0'; expected greater than or equal to 1"),
        (["solve"], "INSTANCE is missing; expected INSTANCE"),
        (["check", "chain8"], "PLAN.json is missing; expected PLAN.json"),
        (["certify", "chain8"], "--out is missing; expected FILE"),
        (["solve", "schedule", "--resource", "cap"], "option is '--resource'; expected none: "),
        (["hierarchy"], "the command is 'hierarchy'; expected planner.analysis.hierarchy.compare"),
        (["solv"], "the command is 'solv'; expected one of solve, "),
        (["solve", "chain8", "--seed"], "Option '--seed' requires an argument."),
        (["verify", "a", "b", "c"], "Got unexpected extra argument(s) (c)"),
        (["crosscheck", "chain8", "--method", "x"], "unknown option --method for planner crosscheck; expected one of"),
    ],
)
def test_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(line) and shown.err.count("\n") == 1 and not shown.out


def test_every_command_has_examples() -> None:
    assert set(app._EXAMPLES) == set(app._COMMANDS)

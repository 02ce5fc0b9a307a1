"""The first page of help: a line for each command, by what it is for. No command is imported to print it."""

import os
import sys
from collections.abc import Callable, Sequence

ABOUT = "Exact models next to the published algorithms of DNN-parallelization planners."
#: What the commands do, those first that everybody uses.
PANELS = {
    "Solve and compare": {
        "solve": "Find a plan; --exact proves it optimal",
        "crosscheck": "Run several methods and compare plans, bounds and proofs",
        "check": "Check a plan against the definition of its problem",
        "list": "List problems, methods and instances",
        "make": "Write an instance to edit, or a blank for a method of yours",
    },
    "Understand": {
        "explain": "Why there is no plan and what repairs it, or what binds",
        "sensitivity": "How far its numbers may be off until a plan is not best",
        "alternatives": "The best plans, what is near the optimum, the front",
        "sweep": "The best over micro-batch sizes, or over linear orders",
        "frontier": "All optima by devices and micro-batches, or by memory",
        "diff": "What differs between two plans, and what it costs",
        "report": "A page about instances: methods, gaps, plans to explore",
    },
    "Validate and mine": {
        "validate": "How often a heuristic is optimal on many instances, how far off",
        "mine": "Search for the smallest instance on which a method loses",
        "census": "Solve exactly what a planner's run solves inside",
        "extract": "Write the subproblems of a planner's run to a file",
        "bench": "Measure methods: loss, gap, objective, bound and seconds",
        "library": "Instances with the best that is known, and scores on them",
    },
    "Models": {
        "model": "Look at a method's model, write it, read its solutions",
        "formulations": "Compare an instance's models: sizes, roots, seconds",
        "schema": "The format of instance files as JSON Schema",
    },
    "Proofs": {
        "certify": "Solve, and write a certificate of the bound",
        "verify": "Check a certificate with exact numbers and no solver",
        "checker": "Print what verifies a problem's certificates as one file",
    },
    "PyTorch and trainers": {
        "import": "Make an instance of a PyTorch model, traced without weights",
        "convert": "Read what Galvatron or Megatron measured, or write as others do",
        "profile": "Make an instance of a model measured on this machine",
        "calibrate": "Fit a device's rates to measured forward passes",
        "export": "Write a plan as a trainer reads it",
        "run": "Run an iteration of a plan on processes of this machine",
        "fidelity": "Compare what a plan predicts with what its run measured",
    },
    "Papers and installation": {
        "reproduce": "Examine a claim of a paper next to the optimum",
        "doctor": "Check versions, solvers and compiled kernels",
    },
}
BRIEFS = {name: brief for panel in PANELS.values() for name, brief in panel.items()}


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether the first page is all that a command line wants."""
    return list(arguments) == ["--help"] and "_PLANNER_COMPLETE" not in os.environ


def text(command: str, bold: Callable[[str], str]) -> str:
    """The page, for a command line that begins with ``command``; titles are ``bold``."""
    lines = [f"Usage: {command} COMMAND [ARGS]...", ABOUT]
    for title, commands in PANELS.items():
        lines += [bold(title), *(f"  {name:<12}  {brief}" for name, brief in commands.items())]
    lines += [bold("Options") + ": --version, --install-completion, --show-completion, --help"]
    return "\n".join([*lines, f"{command} COMMAND --help shows a command's options, with examples."])


def show() -> int:
    """Print the page, and return the exit code of that."""
    print(text("planner", _bold))
    return 0


def _bold(title: str) -> str:
    return f"\033[1m{title}\033[0m" if sys.stdout.isatty() else title

"""Options of ``solve`` that are other commands now: a command line that has one is read as one of that command."""

from collections.abc import Sequence

from planner.process.errors import UsageError

#: By the command the options, and what they are called there.
_MOVED = {
    "alternatives": {"--alternatives": "--count", "--within": "--within", "--pareto": "--pareto"},
    "sweep": {name: name for name in ("--batch-size", "--grad-accum", "--microbatch-sizes", "--jobs")},
}


def as_now(arguments: Sequence[str]) -> tuple[list[str], str]:
    """The arguments of the command that has the options of ``solve`` among them, and a note of it; empty: of no other.

    `UsageError` for what has another meaning there.
    """
    words = [word.partition("=") for word in arguments]
    if not words or words[0][0] != "solve":
        return list(arguments), ""
    values = {name: value or following for (name, _, value), following in zip(words, [*arguments[1:], ""], strict=True)}
    old, command = next(((each, of) for of, names in _MOVED.items() for each in names if each in values), ("", ""))
    names = _MOVED.get(command, {})
    if not old and "," in values.get("--linearize", ""):
        old, command, names = "--linearize", "sweep", {"--linearize": "--orders"}
    if not old:
        return list(arguments), ""
    if command == "alternatives" and "--count" in values:  # of solve: of a tensor's consumers, not of plans
        raise UsageError.at("--count", values["--count"], f"none with {old}")
    names = names | {"--portfolio": "--method=portfolio"}
    implied = ("--exact",) if command == "alternatives" else ()
    moved = [names.get(name, name) + sign + value for name, sign, value in words[1:] if name not in implied]
    return [command, *moved], f"note: solve {old} is now planner {command}"

"""Random command lines: none ends in a way that docs/interface/exit-codes.md does not name.

Commands and options are those that the command line has, so that new ones are drawn without a change here.
"""

import json
import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from fuzzing import FOREIGN, TEXTS, documented, mutated, mutated_text
from small_instances import family_named, random_case

import planner
from formulations import FAMILIES
from instances.catalog.catalog import CATALOG
from planner.cli.app import application, main
from planner.training.trainers.formats import FORMATS

#: Those with processes, browsers, solvers' exams or claims of their own are not drawn.
LEFT_OUT = {"import", "profile", "run", "doctor", "reproduce", "report", "bench", "validate", "mine", "library"}
COMMANDS = sorted(set(typer.main.get_command(application(None)).commands) - LEFT_OUT)  # type: ignore[attr-defined]
#: The problems of commands that do not take all of them.
TAKES = {"frontier": ("stage_partitioning",), "export": ("stage_partitioning", "operator_partitioning", "stage_graph")}
#: Exit codes that a command has beside 0, 2, 3 and 4.
ALSO = {command: {1} for command in ("check", "verify", "export", "model")}
#: What Python, or a library, says about itself.
INSIDE = re.compile(r"Traceback \(most recent|\.py:\d+: |Exception ignored|Check failed|terminate called|\bWarning: ")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
#: Another command with its options.
OTHER = re.compile(r"planner [a-z]+ [^;)\n]*")
#: Values by option or metavar: most of them are meant well.
VALUES: dict[str, Sequence[str]] = {
    "--time-limit": ("0.05", "0.1", "0.1", "0"), "--samples": ("1", "2"), "--count": ("1", "2"), "--jobs": ("1",),
    "--threads": ("1", "2", "0"), "--gap": ("0", "0.01", "1", "nan"), "--within": ("1%", "0.5", "-1%"),
    "--pareto": ("time,memory", "devices", ","), "--orders": ("id,lifo", "name", ","), "--noise": ("10%", "2", "-1"),
    "--topology": ("dgx1", "mesh2d", "ring"), "--solver": ("highs", "glpk"), "--solver-option": ("presolve=off", "="),
    "--solver-log": ("log.txt",), "--require": ("num_stages <= 1", "num_stages >= 1", "not x"), "--to": (*FORMATS, "x"),
    "--memories": ("1GB,2GB", "0"), "--write": ("m.lp", "m.mps", "m.json", "m"), "--read": ("1.json", "none.sol"),
    "SIZE": ("1GB", "8GiB", "0", "-1GB"), "FILE.png|svg": ("p.svg", "p.txt"), "FILE.jsonl": ("e.jsonl", "none/x"),
    "N": ("1", "2", "3", "4", "-1", "0", "1.5", "2147483648"), "S": ("0", "1", "-1", "x"), "TRAINER": (*FORMATS, "x"),
    "DIR": (".", "none"), "FILE": ("out.json", "none/out"),
}  # fmt: skip


@cache
def parameters(command: str) -> list[Any]:
    """Of a command, with all settings."""
    group: Any = typer.main.get_command(application(command))
    return [each for each in group.commands[command].params if each.opts[0] != "--dask"]


class Line:
    """The words of a number, and the files that they name in this folder."""

    def __init__(self, number: int) -> None:
        self.rng = rng = random.Random(f"command line {number}")
        command = rng.choice([*COMMANDS, *["solve"] * 8, *["crosscheck", "check", "model"] * 2])
        self.family = family_named(rng.choice(TAKES.get(command) or [each.name for each in FAMILIES]))
        #: Most lines are meant well.
        self.careful, self.made = rng.random() < 0.65, 0
        self.instance = random_case(self.family.name, 0, rng.randrange(10**9))
        self.source = self.file(self.family.to_json(self.instance), 0.2)
        params = parameters(command)
        mine = {f"--{each.name}" for each in self.family.overrides}
        mine |= {f"--{each.name}" for method in self.family.methods for each in method.options}
        known = [p for p in params if p.param_type_name == "option"]
        settings = [p for p in known if p.hidden and p.rich_help_panel is None]
        plain = [p for p in known if p not in settings]
        fitting = [p for p in settings if p.opts[0] in mine] if rng.random() < 0.9 else settings
        chosen = [p for p in plain if p.required or p.opts[0] in ("--time-limit", "--samples", "--count")]
        chosen += [p for p in plain if p.opts[0] in ("--method", "--json", "--quiet") and rng.random() < 0.4]
        for group in (plain, fitting):
            chosen += rng.sample(group, min(len(group), rng.choice([0, 1, 1, 2])))
        self.words = [command]
        self.words += [self.value(p) for p in params if p.param_type_name == "argument"]
        self.words += [w for p in chosen for w in (p.opts[:1] if p.is_flag else (p.opts[0], self.value(p)))]

    def value(self, param: Any) -> str:
        """One that the parameter takes, or any text."""
        rng, metavar, flag = self.rng, str(param.metavar), param.opts[0]
        if rng.random() < 0.05 and not self.careful:
            return rng.choice(TEXTS)
        if flag == "certificate" and self.family.certificates is not None:
            return self.file(planner.certify(self.instance).content, 0.5)
        if "PLAN" in metavar:
            return ("mine=" if "=" in metavar else "") + self.plan()
        if metavar.islower() and "|" in metavar:
            return rng.choice(metavar.split("|"))
        if (values := VALUES.get(flag) or VALUES.get(metavar)) is not None:
            return rng.choice(values[: -(-len(values) // 2)] if self.careful else values)
        if "METHOD" in metavar or flag in ("--method", "--methods", "--from", "--against"):
            return rng.choice([*[each.name for each in self.family.methods], "auto", *["none"] * (not self.careful)])
        if "INSTANCE" in metavar or flag == "instance":
            foreign = self.file(rng.choice([*documented().values(), *FOREIGN.values()]), 0.5)
            return self.source if self.careful else rng.choice([self.source, foreign, "chain8", *CATALOG, "none.json"])
        if "PROBLEM" in metavar or flag == "--problem":
            return self.family.name if self.careful else rng.choice(FAMILIES).name
        return rng.choice(["1", "2", "3", "1,2", "1GB", "2GB/s", *[*TEXTS, "2147483648"] * (not self.careful)])

    def plan(self) -> str:
        """The file of what `auto` finds in a moment."""
        found = planner.solve(self.instance, limits=planner.Limits(time_s=0.1)).to_json()
        return self.file(self.rng.choice([found, found["plan"]]), 0.4)

    def file(self, content: Any, spoiled: float) -> str:
        """A file of a JSON value, which is changed or cut off as often as that, where the line is not meant well."""
        self.made += 1
        kind = 1.0 if self.careful else self.rng.random() / spoiled
        data = json.dumps(mutated(content, self.rng) if kind < 0.7 else content).encode("utf-8", "surrogatepass")
        Path(f"{self.made}.json").write_bytes(mutated_text(json.dumps(content), self.rng) if kind < 0.3 else data)
        return f"{self.made}.json"


def wrong(words: Sequence[str], code: int, out: str, err: str) -> list[str]:
    """What docs/interface/exit-codes.md does not allow, in words."""
    lines, own = err.splitlines(), {"--help", *(o for p in parameters(words[0]) for o in (*p.opts, *p.secondary_opts))}
    named = [o for o in OPTION.findall(OTHER.sub("", err)) if o not in own and o not in " ".join(words)]
    rules = {
        f"exit code {code}": code not in {0, 2, 3, 4} | ALSO.get(words[0], set()),
        "Python on standard error": INSIDE.search(err),
        "refused without a word": code == 2 and not out and not err,
        "refused in several lines": code == 2 and "--quiet" in words and len(lines) > 1,
        f"names {named}, which are not its options": code == 2 and named,
        "what cannot be printed": any(not line.isprintable() for line in (*lines, *out.split("\n"))),
        "not one JSON object": "--json" in words and (out or code != 2) and not is_object(out),
    }
    return [sentence for sentence, broken in rules.items() if broken]


def is_object(text: str) -> bool:
    """Whether it is one line with one object, whose numbers are JSON's."""
    try:
        return isinstance(json.loads(text, parse_constant=int), dict) and text.count("\n") <= 1
    except ValueError:
        return False


def test_what_is_not_allowed_is_noticed() -> None:
    broken = [(code, "", "x\n") for code in (70, 1, 5, -6)] + [(2, "", ""), (2, "", "a\nb\n"), (0, "\x1b[31m", "")]
    broken += [(0, out, "") for out in ("{}\n{}\n", "", '{"bound": NaN}\n', "[]\n")] + [(2, "", "--complete is 'x'\n")]
    broken += [
        (0, "{}", "Traceback (most recent call last):\nKeyError: 3\n"),
        (0, "{}", "a.py:385: RuntimeWarning: x\n"),
    ]
    assert [each for each in broken if not wrong(("solve", "x", "--json", "--quiet"), *each)] == []
    assert wrong(("solve", "x", "--json", "--quiet"), 0, "{}\n", "") == []


def test_random_command_lines(cases: int, tmp_path: Path, monkeypatch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(2 * cases):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        words = Line(number).words
        capfd.readouterr()
        code = main(words)
        assert wrong(words, code, *capfd.readouterr()) == [], (number, words)

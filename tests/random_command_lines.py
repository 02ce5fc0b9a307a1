"""Random command lines of every command: none may end in a way that docs/interface/exit-codes.md does not name.

``python tests/random_command_lines.py --count 10000 --seed 0 --jobs 2`` prints what was wrong, each with the line and
how to run it again, and then how the lines of each command ended. A line runs in a process of its own, a copy of one
that has imported everything: whatever it does, the others go on. ``--only 17`` runs one line again, shows it, and keeps
its folder. The exit code is 5 if something was wrong.
"""

import argparse
import gc
import importlib
import json
import os
import pkgutil
import re
import resource
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "support"))

from command_lines import Maker, commands, parameters

#: Exit codes by what may have them: a command's, beside those of all.
CODES = {0, 2, 3, 4}
ALSO = {command: {1} for command in ("check", "verify", "export", "run", "doctor", "model")}
#: Seconds, on a machine that others use as well, after which a line is ended. Methods of a line that has a limit share
#: this; one without a limit may take longer and is only counted.
PATIENCE_S = 60.0
#: Seconds of CPU that a line with a limit of at most a third of a second takes, with all of its methods.
MOST_CPU_S = 25.0
#: Memory of a line: one that wants more is a finding, and takes no machine down.
MEMORY_BYTES = 12 * 2**30
KILLED = -signal.SIGKILL
#: What Python, or a library, says about itself.
_INSIDE = re.compile(r"Traceback \(most recent|\.py:\d+: |Exception ignored|Check failed|terminate called|\bWarning: ")


_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
#: Another command with its options.
_OTHER = re.compile(r"planner [a-z]+ [^;)\n]*")


@dataclass(frozen=True)
class Ran:
    """What a line did: its words, exit code (below 0: the signal that ended it), what it printed, and its seconds.

    ``left`` counts the processes that were there after its own had ended.
    """

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    cpu_s: float
    wall_s: float
    left: int = 0

    @property
    def command(self) -> str:
        """The first word, if it is a command."""
        return self.words[0] if self.words and self.words[0] in commands() else "none"


def wrong(ran: Ran) -> list[str]:
    """What docs/interface/exit-codes.md does not allow, in words."""
    found, lines = [], ran.err.splitlines()
    if ran.code == KILLED and _is_limited(ran):
        found.append(f"was still there after {ran.wall_s:.0f} s ({ran.cpu_s:.1f} s of CPU)")
    elif ran.code != KILLED and ran.code not in CODES | ALSO.get(ran.command, set()):
        found.append(f"exit code {ran.code}")
    if inside := _INSIDE.search(ran.err):
        found.append(f"{inside.group()!r} on standard error")
    if ran.left:
        found.append(f"{ran.left} processes are left")
    if ran.code == 2 and not lines and not ran.out:
        found.append("refused without a word")
    if ran.code == 2 and "--quiet" in ran.words and len(lines) > 1:
        found.append(f"refused in {len(lines)} lines")
    if ran.code == 2 and ran.command != "none" and (strange := strangers(ran)):
        found.append(f"names options that {ran.command} does not have: {', '.join(strange)}")
    if any(not line.isprintable() for line in (*lines, *ran.out.split("\n"))):
        found.append("what cannot be printed was printed")
    if ran.code >= 0 and "--json" in ran.words and "--help" not in ran.words and (ran.out or ran.code != 2):
        found += _json(ran.out)
    if ran.code != KILLED and _is_limited(ran) and ran.cpu_s > MOST_CPU_S:
        found.append(f"took {ran.cpu_s:.1f} s of CPU")
    return found


def strangers(ran: Ran) -> list[str]:
    """The options that a refusal names and the command does not have: neither given, nor another command's by name."""
    own = {"--help"} | {option for each in parameters(ran.command) for option in (*each.opts, *each.secondary_opts)}
    given = " ".join(ran.words)
    said = _OTHER.sub("", ran.err)
    return [option for option in dict.fromkeys(_OPTION.findall(said)) if option not in own and option not in given]


def _json(text: str) -> Iterator[str]:
    def refuse(token: str) -> None:
        raise ValueError(f"{token} is no JSON")

    if text.count("\n") > 1:
        yield f"--json printed {text.count(chr(10))} lines"
    try:
        if not isinstance(json.loads(text, parse_constant=refuse), dict):
            yield "--json printed no object"
    except ValueError as error:
        yield f"--json did not print one object: {error}"


def _is_limited(ran: Ran) -> bool:
    """Whether a limit was given that ends it soon; options that repeat its work make no difference to that."""
    given = [
        word.removeprefix("--time-limit=") if "=" in word else ran.words[place + 1 : place + 2]
        for place, word in enumerate(ran.words)
        if word.startswith("--time-limit=") or word == "--time-limit"
    ]
    with suppress(ValueError, IndexError, TypeError):
        return 0 <= float(given[-1] if isinstance(given[-1], str) else given[-1][0]) <= 0.5
    return False


# Running -------------------------------------------------------------------------------------------------------------


def warmed() -> None:
    """Import everything, load every compiled loop and draw once, here: no copy of this process does it again."""
    import formulations
    import instances
    import planner
    import planner.__main__
    import solvers
    from planner.cli.app import main

    for family in formulations.FAMILIES:
        for method in family.methods:
            method.load()
    for package in (planner, formulations, instances, solvers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "templates" not in module.name and not module.name.endswith("__main__"):
                with suppress(ImportError):  # of an extra that is not installed
                    importlib.import_module(module.name)
    null = os.open(os.devnull, os.O_WRONLY)
    kept = os.dup(1)
    os.dup2(null, 1)
    for words in (["--help"], ["list"], ["schema", "tmpc_knapsack"]):
        main(words)
    sys.stdout.flush()
    os.dup2(kept, 1)
    gc.collect()
    gc.freeze()


def _copy(seed: int, number: int, folder: Path, only: Sequence[str]) -> int:
    """Start a copy of this process that makes the line and runs it; the number of the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    try:  # nothing of this may return
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        (folder / "work").mkdir(parents=True)
        os.chdir(folder / "work")
        for name, stream in (("out", 1), ("err", 2)):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        words = Maker(seed, number, Path(), only).line()
        (folder / "words.json").write_text(json.dumps(words))
        from planner.__main__ import main

        sys.argv = ["planner", *words]
        main()
    except SystemExit as stop:
        os._exit(int(stop.code or 0))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(99)


def _ended(process: int, folder: Path, status: int, cpu_s: float, wall_s: float) -> Ran:
    """What the copy did; what it left behind is ended, too."""
    left = 0
    until = time.monotonic() + 2
    while (left := _alive(process)) and time.monotonic() < until and status != KILLED:
        time.sleep(0.02)
    if left:
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    words = folder / "words.json"
    return Ran(
        tuple(json.loads(words.read_text())) if words.exists() else ("(no line was made)",),
        status,
        (folder / "out").read_text(errors="backslashreplace") if (folder / "out").exists() else "",
        (folder / "err").read_text(errors="backslashreplace") if (folder / "err").exists() else "",
        cpu_s,
        wall_s,
        0 if status == KILLED else left,
    )


def _alive(group: int) -> int:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return 0
    return 1


def run_lines(
    seed: int, numbers: Iterable[int], jobs: int, folder: Path, only: Sequence[str]
) -> Iterator[tuple[int, Ran]]:
    """What the lines of these numbers do, as they end; their files lie in a folder for each."""
    waiting, running = iter(numbers), dict[int, tuple[int, float]]()
    while True:
        while len(running) < jobs and (number := next(waiting, None)) is not None:
            shutil.rmtree(folder / str(number), ignore_errors=True)
            running[_copy(seed, number, folder / str(number), only)] = number, time.monotonic()
        if not running:
            return
        for process, (number, began) in list(running.items()):
            done, status, used = os.wait4(process, os.WNOHANG)
            seconds = time.monotonic() - began
            if done:
                del running[process]
                cpu_s = used.ru_utime + used.ru_stime
                code = os.waitstatus_to_exitcode(status)
                yield number, _ended(process, folder / str(number), code, cpu_s, seconds)
            elif seconds > PATIENCE_S:
                with suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)
        time.sleep(0.002)


# Counting ------------------------------------------------------------------------------------------------------------


def run_all(seed: int, count: int, jobs: int, out: Path, only: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each line, by number; the files of those that are wrong stay."""
    rows = {}
    for number, ran in run_lines(seed, range(count), jobs, out / f"files-{seed}", only):
        rows[number] = {"number": number, "command": ran.command, "code": ran.code, "cpu_s": ran.cpu_s}
        rows[number]["wrong"] = wrong(ran)
        if rows[number]["wrong"]:
            rows[number] |= asdict(ran)
            print(_shown(seed, rows[number]), file=sys.stderr, flush=True)
        else:
            shutil.rmtree(out / f"files-{seed}" / str(number), ignore_errors=True)
        if len(rows) % 500 == 0:
            print(f"{len(rows)} of {count} lines", file=sys.stderr, flush=True)
    return [rows[number] for number in sorted(rows)]


def _shown(seed: int, row: dict[str, Any]) -> str:
    words = shlex.join(row["words"])
    last = row["err"].strip().rpartition("\n")[2]
    return (
        f"{'; '.join(row['wrong'])}: planner {words if len(words) < 400 else words[:400] + '...'}\n  {last[:300]}\n"
        f"  python tests/random_command_lines.py --seed {seed} --only {row['number']}"
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """How many lines of each command ended how, and their seconds of CPU."""
    codes = sorted({row["code"] for row in rows})
    head = ("command", "lines", *map(str, codes), "wrong", "CPU s")
    shown = [head]
    for command in (*commands(), "none", "all"):
        own = [row for row in rows if command in (row["command"], "all")]
        ended = Counter(row["code"] for row in own)
        seconds = f"{sum(row['cpu_s'] for row in own):.1f}"
        counts = (len(own), *(ended[code] for code in codes), sum(bool(row["wrong"]) for row in own))
        shown.append((command, *map(str, counts), seconds))
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in shown)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--commands", default="", help="some of them, with commas in between")
    parser.add_argument("--only", type=int, help="the number of a line, which is run again and shown")
    parser.add_argument("--out", default="random-command-lines", help="folder for files of what was wrong")
    given = parser.parse_args(arguments)
    only = [each for each in given.commands.split(",") if each]
    if unknown := set(only) - set(commands()):
        parser.error(f"no commands: {', '.join(sorted(unknown))}; expected some of {', '.join(commands())}")
    out = Path(given.out).resolve()
    warmed()
    if given.only is not None:
        [(_, ran)] = run_lines(given.seed, [given.only], 1, out / f"files-{given.seed}", only)
        print(f"planner {shlex.join(ran.words)}\n{ran.out}{ran.err}exit code {ran.code}, {ran.cpu_s:.2f} s of CPU")
        print(*wrong(ran), f"files: {out}/files-{given.seed}/{given.only}/work", sep="\n")
        return 5 if wrong(ran) else 0
    rows = run_all(given.seed, given.count, given.jobs, out, only)
    print(table(rows))
    bad = [row for row in rows if row["wrong"]]
    print("", *(_shown(given.seed, row) for row in bad), sep="\n") if bad else print("\nnothing was wrong")
    return 5 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

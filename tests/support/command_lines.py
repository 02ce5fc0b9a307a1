"""Random command lines of every command, by seed: words, and the files that they name.

Commands, options and settings are those that the command line has: a new one is drawn without a change here, with the
values of its metavar, or else any text. Values are valid, at the ends of their ranges, or absurd.
"""

import gzip
import json
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import typer
from fuzzing import FOREIGN, PROFILE, TEXTS, documented, mutated, mutated_text
from small_instances import family_named, random_case

import planner
from formulations import FAMILIES
from formulations.contract.family import Claim, Family
from instances.catalog.catalog import CATALOG
from planner.cli.app import application, main
from planner.training.trainers.formats import FORMATS

NAMES = [family.name for family in FAMILIES]
#: How often a command is drawn; 4 for the others. Pictures, pages and whole claims take a second each.
_WEIGHTS = {
    "solve": 30, "crosscheck": 10, "check": 8, "verify": 8, "explain": 6, "model": 10, "doctor": 0.02, "reproduce": 1,
    "report": 0.3, "validate": 1.5, "schema": 1, "make": 2, "list": 2, "import": 1, "profile": 1, "run": 1.5,
    "fidelity": 1, "calibrate": 1,
}  # fmt: skip
#: Entries of the catalog that every method solves, or gives up, within a second.
_SMALL = ("chain8", "diamond", "chain8-machines", "chain8-flushed", "fig2", "schedule-figure-5", "graphpipe-case-study")
#: The same with parameters.
_SIZED = {
    "knapsack": ["--nodes", "4", "--options", "3"], "layers": ["--layers", "6", "--stages", "2"],
    "mesh": ["--rows", "2", "--columns", "2"], "schedule": ["--stages", "2", "--minibatch", "4"],
    "schedule-chain": ["--stages", "2", "--minibatch", "4"], "two-level": ["--stages", "2", "--replicas", "1"],
    "candle-uno": ["--branches", "2", "--layers", "1", "--devices", "2"], "bert32": ["--first", "4", "--devices", "2"],
    "mmt": ["--branches", "2", "--layers", "1", "--devices", "2", "--minibatch", "4"],
}  # fmt: skip
#: What has no limit of its own, or takes longer than its share: claims that examine nothing large.
_CLAIMS = ("parmesan-fig-2", "graphpipe-fig-2", "graphpipe-fig-5", "graphpipe-case-study")
_FEW, _ANY = ("1", "1", "2", "3"), ("0", "1", "2", "7", "-1", "2147483648", "18446744073709551616", "1.0")
_SECONDS = ("0.02", "0.1", "0.1", "0.3")
_ODD_SECONDS = ("0", "1e-9", "-1", "nan", "-inf", "1e-400", "1,5", "0x1")
#: Options that make a line take as long as its limit says, and which are therefore nearly always given.
_LIMITS = ("--time-limit", "--count", "--samples", "--repeats")

#: Options that are drawn less often: a scheduler that does not answer is waited for.
_SELDOM = ("--dask",)
#: How often an option is given whatever else is drawn.
_SHARES = {
    "--json": 0.4, "--quiet": 0.2, "--method": 0.4, "--methods": 0.4, "--threads": 0.15, "--require": 0.15,
    "--read": 0.2, "--root": 0.2, "--exact": 0.2, "--scenarios": 0.2, "--plan": 0.1,
}  # fmt: skip
#: The problems of commands that do not take all of them.
_TAKES: dict[str, Callable[[Family[Any, Any]], Any]] = {
    "frontier": lambda family: family.name == "stage_partitioning",
    "export": lambda family: family.name in ("stage_partitioning", "operator_partitioning", "stage_graph"),
    "run": lambda family: family.name in ("stage_partitioning", "operator_partitioning", "stage_graph"),
    "census": lambda family: family.subproblems,
    "extract": lambda family: family.subproblems,
    "explain": lambda family: family.questions,
    "sensitivity": lambda family: family.questions,
    "mine": lambda family: family.mining,
}


@cache
def commands() -> tuple[str, ...]:
    """The names of all commands."""
    return tuple(_group(None).commands)


def _group(name: str | None) -> Any:
    return typer.main.get_command(application(name))


@cache
def parameters(name: str) -> tuple[Any, ...]:
    """Of a command, with all settings."""
    return tuple(_group(name).commands[name].params)


class Maker:
    """Makes the line of a number in a folder, and the files that it names: the same for the same seed."""

    def __init__(self, seed: int, number: int, folder: Path, only: Sequence[str] = ()) -> None:
        self.rng = random.Random(f"command line {seed} {number}")
        self.folder = folder
        self.family: Family[Any, Any] = family_named(self.rng.choice(NAMES))
        self._only = only or commands()
        #: Most lines are meant well: what they name is there, and has one fault at most.
        self._care = 0.1 if self.rng.random() < 0.65 else 1.0
        self._made = 0
        self._instance: Any = None
        self._source: str | None = None
        self._beside: list[str] = []

    def line(self) -> list[str]:
        """The words after ``planner``."""
        rng = self.rng
        if rng.random() < 0.01:
            return [rng.choice([*TEXTS, "--help", "--version", "slove", "--json"]) for _ in range(rng.randint(0, 3))]
        name = rng.choices(self._only, [_WEIGHTS.get(each, 4) for each in self._only])[0]
        if name in _TAKES and rng.random() < 0.85:
            self.family = rng.choice([family for family in FAMILIES if _TAKES[name](family)])
        params = parameters(name)
        if rng.random() < 0.02:
            return [name, *(self._argument(each) for each in params[:1] if rng.random() < 0.5), "--help"]
        arguments = [each for each in params if each.param_type_name == "argument"]
        words = [
            word
            for each in arguments
            for word in (self._several(each) if each.nargs == -1 else [self._argument(each)])
            if (each.required or rng.random() < 0.4) and rng.random() < 1 - 0.02 * self._care
        ]
        options = [word for each in self._options(name, params) for word in self._given(name, each)]
        options += self._beside
        if rng.random() < 0.02 * self._care:
            options.append(rng.choice(["--no-such-option", "--time-limti=3", "-x", "", "--"]))
        return [name, *options, *words] if rng.random() < 0.3 and "--" not in options else [name, *words, *options]

    def _options(self, name: str, params: Sequence[Any]) -> list[Any]:
        """Those to be given, in any order."""
        rng = self.rng
        known = [each for each in params if each.param_type_name == "option"]
        own = [each for each in known if not each.hidden or each.rich_help_panel is not None]
        chosen = [each for each in own if rng.random() < self._share(name, each)]
        rest = [each for each in own if each not in chosen and (each.opts[0] not in _SELDOM or rng.random() < 0.1)]
        rest = [each for each in rest if not each.hidden or rng.random() < 0.1]
        chosen += rng.sample(rest, min(len(rest), rng.choice([0, 0, 1, 1, 2])))
        settings = {each.opts[0]: each for each in known if each not in own}
        wanted = {f"--{each.name}" for each in self.family.overrides}
        wanted |= {f"--{option.name}" for method in self.family.methods for option in method.options}
        fitting = (
            [flag for flag in settings if flag in wanted] if rng.random() < 1 - 0.2 * self._care else list(settings)
        )
        flags = rng.sample(fitting, min(len(fitting), rng.choice([0, 0, 0, 1, 1, 2])))
        chosen += [settings[flag] for flag in flags]
        rng.shuffle(chosen)
        return chosen

    @staticmethod
    def _share(name: str, param: Any) -> float:
        flag = param.opts[0]
        if param.required or (name, flag) == ("solve", "--method"):
            return 0.98 if param.required else 0.6
        if flag in _LIMITS:
            return 0.98
        return _SHARES.get(flag, 0.0)

    def _given(self, name: str, param: Any) -> list[str]:
        flag = param.opts[0]
        if param.is_flag:
            return [self.rng.choice([*param.opts, *param.secondary_opts])]
        times = self.rng.choice([1, 1, 2]) if param.multiple else 1
        found = []
        for _ in range(times):
            values = [self._value(name, param) for _ in range(param.nargs)]
            found += [f"{flag}={values[0]}"] if len(values) == 1 and self.rng.random() < 0.4 else [flag, *values]
        return found

    def _argument(self, param: Any) -> str:
        return self._of(str(param.metavar), f"<{param.name}>")

    def _several(self, param: Any) -> list[str]:
        return [self._argument(param) for _ in range(self.rng.choice([1, 1, 1, 2]))]

    def _value(self, name: str, param: Any) -> str:
        rng, flag = self.rng, param.opts[0]
        if flag == "--time-limit" and rng.random() < 0.95:
            return rng.choice(_SECONDS if rng.random() < 1 - 0.1 * self._care else _ODD_SECONDS)
        if flag in _LIMITS:
            return rng.choice(_FEW if rng.random() < 1 - 0.1 * self._care else ("0", "-1", "x", "1.5", ""))
        if rng.random() < 0.08 * self._care:
            return rng.choice(TEXTS)
        if param.hidden and param.rich_help_panel is None:
            return self._setting(flag.removeprefix("--"))
        return self._of(str(param.metavar), flag, name)

    # Values ----------------------------------------------------------------------------------------------------------

    def _of(self, metavar: str, flag: str, name: str = "") -> str:
        """A value, most of them of the kind that the option takes."""
        choose = self.rng.choice
        by_flag: dict[str, Callable[[], str]] = {
            "--method": self._method, "--from": self._method, "--against": self._method, "--methods": self._methods,
            "--problem": partial(self._problem, name), "--require": self._requirement, "--solver": self._solver,
            "--solver-option": lambda: choose(["presolve=off", "x=1", "threads=2", "max_time_in_seconds=1", "=", "a"]),
            "--threads": lambda: choose(["1", "1", "2", "2", "3", "0", "-1", "4294967296"]),
            "--jobs": lambda: choose(["1"] * 12 + ["2", "0", "-1"]),
            "--gap": lambda: choose(["0", "1e-7", "0.01", "0.5", "1", "-1", "nan", "inf"]),
            "--within": lambda: choose(["1%", "0", "0.5", "10 %", "-1%", "nan", "1e9%"]),
            "--pareto": lambda: choose(["time,memory", "time,memory,devices", "devices", "time,time", ","]),
            "--orders": lambda: choose(["id,lifo", "name,id", "id", "sideways", ","]),
            "--noise": lambda: choose(["10%", "0", "0.5", "100%", "-1", "nan"]),
            "--topology": lambda: choose(["dgx1", "mesh2d", "torus2d", "uniform-dist", self._matrix(), "ring"]),
            "--to": lambda: choose([*FORMATS, "torhc"]), "--loss": lambda: choose(["5%", "0", "no-plan", "1e9", "-1"]),
            "--max": lambda: choose(["nodes=3", "number=4,nodes=2", "nodes=0", "x=1", "nodes", "devices=2"]),
            "--domain": self._domain, "--suite": self._suite, "--inputs": lambda: choose([".", "no-folder"]),
            "--memories": lambda: choose(["1GB", "1GB,2GB", "1B", "0", "1e30GB", "-1"]),
            "--seeds": lambda: choose(["0,1", "0", "-1", "0,,1"]), "--model": self._model,
            "--dask": lambda: choose(["tcp://127.0.0.1:9", "x"]), "--scenarios": self._scenarios,
            "--read": self._solution, "--passes": self._plan, "--hardware": lambda: choose(["h100", "v100", "x"]),
            "--devices": self._number, "--certify": lambda: "certificates", "--calibrate": lambda: choose([".", "x"]),
            "--compare": lambda: choose([".", "rows.jsonl", self._rows()]), "--write": self._model_file,
            "--reproducer-dir": lambda: "reproducers", "<first>": self._plan, "<second>": self._plan,
        }  # fmt: skip
        by_metavar: dict[str, Callable[[], str]] = {
            "INSTANCE": self._instance_name, "INSTANCE...": self._instance_name, "SOURCE": self._sources,
            "PROBLEM|INSTANCE": lambda: choose([choose(NAMES), self._instance_name(), choose([*CATALOG])]),
            "NAME|method|template": lambda: choose(["method", "template", choose([*CATALOG]), self._entry()]),
            "PROBLEM": self._problem, "PLAN.json": self._plan, "PLAN": self._plan, "CLAIM": lambda: choose(_CLAIMS),
            "torch|hf": lambda: choose(["torch", "hf", "x"]), "MODEL": lambda: choose(["gpt2", self._model()]),
            "FILE.py:FUNCTION": self._model, "MEASUREMENTS.csv": self._measurements, "RUN": self._run,
            "METHOD": self._method, "NAME=PLAN.json": lambda: f"{choose(['mine', 'exact', ''])}={self._plan()}",
            "SIZE": lambda: choose(["1GB", "8GiB", "1B", "0", "-1GB"]), "N": self._number, "B": self._number,
            "K": self._number, "R": self._number, "W": self._number, "S": self._number,
        }  # fmt: skip
        if name in ("verify",) and flag == "<certificate>":
            return self._certificate()
        if name == "reproduce" and flag == "--list":
            return ""
        found = by_flag.get(flag) or by_metavar.get(metavar)
        if found is not None:
            return found()
        if flag in ("--out", "--plot", "--trace", "--events", "--certificate", "--solver-log", "--csv"):
            return self._out(metavar)
        if metavar == "FILE":
            return self._certificate()
        return choose([*TEXTS, *_ANY, "1,2"])

    def _number(self) -> str:
        return self.rng.choice(_FEW if self.rng.random() < 1 - 0.3 * self._care else _ANY)

    def _setting(self, name: str) -> str:
        """A value that its own parser takes, found among many, or any."""
        candidates = [
            *("1", "2", "3", "4", "8", "64", "0.5", "1.5", "true", "1,2", "1GB", "8GiB", "100B", "1e3", "2GB/s", "1us"),
            *(word.strip(" ;:,()'") for each in _settings(name) for word in f"{each.metavar}|{each.help}".split("|")),
            *(word.strip(" ;:,()'") for each in _settings(name) for word in each.help.split()),
        ]
        known = {each.name: each for method in self.family.methods for each in method.options}
        known |= {each.name: each for each in self.family.overrides}
        own = [known[name]] if name in known else _settings(name)
        fitting = [text for text in candidates if any(_parses(each, text) for each in own)]
        return self.rng.choice(fitting if fitting and self.rng.random() < 1 - 0.2 * self._care else candidates)

    def _method(self) -> str:
        rng = self.rng
        own = [each.name for each in self.family.methods]
        others = [each.name for family in FAMILIES for each in family.methods]
        return rng.choices(
            [rng.choice(own), rng.choice(others), "auto", self._own_method()], [30, 3 * self._care, 2, self._care]
        )[0]

    def _methods(self) -> str:
        return ",".join(self._method() for _ in range(self.rng.choice([1, 2, 2, 3])))

    def _own_method(self) -> str:
        """A file with a method; starting its process takes most of a second, so that it is seldom a good one."""
        kind = self.rng.random()
        if kind < 0.2:
            _quietly(["make", "method", self.family.name, "--out", str(self.folder / "own.py")])
            return "./own.py:solve"
        return self.rng.choice(["./none.py:solve", self._written(".py", b"def solve("), "./:solve", ".py:"])

    def _problem(self, name: str = "") -> str:
        if name in ("census", "extract") and self.family.subproblems and self.rng.random() < 0.9:
            return str(self.rng.choice(self.family.subproblems).problem)
        return (
            self.family.name
            if self.rng.random() < 1 - 0.4 * self._care
            else self.rng.choice([*NAMES, "stage_partitoning"])
        )

    def _solver(self) -> str:
        # Others than HiGHS have processes of their own, which take a second to start.
        return self.rng.choice(["highs"] * 12 + ["scip", "mathopt:gscip", "gurobi", "mathopt:x", "glpk", "x"])

    def _requirement(self) -> str:
        rng, quantity = self.rng, self.rng.choice(self.family.vocabulary)
        if self._instance is None or rng.random() < 0.2 * self._care:
            return rng.choice([*TEXTS, "num_stages <= 1", quantity.name, f"{quantity.signature} >= 1", "not x"])
        domains = [list(domain.values(self._instance)) for domain in quantity.domains]
        arguments = ", ".join(str(rng.choice(each)) if each else "x" for each in domains)
        called = f"{quantity.name}({arguments})" if domains else quantity.name
        if quantity.is_yes_no and rng.random() < 0.7:
            return rng.choice(["", "not "]) + called
        return f"{called} {rng.choice(['<=', '>=', '==', '=', '<'])} {rng.choice([0, 1, 2, 3, 5, -1])}"

    def _domain(self) -> str:
        known = [each.name for family in FAMILIES if family.mining for each in family.mining().domains]
        return self.rng.choice(known) + self.rng.choice(["", "", "=1", "=3/2", "=x", "=1e9", "="])

    # Files -----------------------------------------------------------------------------------------------------------

    def _written(self, suffix: str, data: bytes | str) -> str:
        """The name of a new file."""
        self._made += 1
        name = f"{self._made}{suffix}"
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogatepass")
        (self.folder / name).write_bytes(data)
        return name

    def _json(self, content: Any, spoiled: float = 0.2) -> str:
        """A file of a JSON value, some of them changed, cut off, packed or not text at all."""
        rng, text = self.rng, json.dumps(content)
        kind = rng.random()
        spoiled *= self._care
        if kind < spoiled / 2:
            return self._written(".json", json.dumps(mutated(content, rng)))
        if kind < spoiled:
            return self._written(".json", mutated_text(text, rng))
        if kind < spoiled + 0.02:
            return self._written(".json.gz", gzip.compress(text.encode()))
        return self._written(".json", text)

    def _entry(self) -> str:
        """A small instance of the catalog."""
        name = self.rng.choice([*_SMALL, *_SIZED])
        self._beside += _SIZED.get(name, [])
        self._instance, self.family = None, family_named(CATALOG[name].family)
        return name

    def _instance_name(self) -> str:
        """The instance of this line: mostly one for all its arguments."""
        if self._source is None or self.rng.random() < 0.1:
            self._source = self._any_instance()
        return self._source

    def _any_instance(self) -> str:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.12:
            return self._entry()
        if kind < 0.16:
            return self._json(rng.choice([*documented().values(), *FOREIGN.values()]), 0.6)
        if kind < 0.17:
            return self._table()
        if kind < 0.18:
            return self._written(".txt", mutated_text(PROFILE, rng) if rng.random() < 0.5 else PROFILE)
        if kind < 0.18 + 0.05 * self._care:
            (self.folder / "folder").mkdir(exist_ok=True)
            return rng.choice(
                ["none.json", "folder", "", "/dev/null", "bert32#1", "chian8", self._written(".json", b"")]
            )
        if kind < 0.26:
            return f"{self._rows()}#{rng.choice(['0'] if self._care < 1 else ['1', '-1', '99', 'x', ''])}"
        return self._json(self._content())

    def _table(self) -> str:
        """A chain of layers as CSV."""
        rng, columns = self.rng, ["time", "weight_bytes", "activation_bytes", "static_bytes", "output_bytes", "name"]
        heading = ["time", *rng.sample(columns[1:], rng.randint(0, 5))]
        values = ["1", "2ms", "0", "1e-3", "5us", "1MB", "3"] + ["", "x", "-1", "5e-324", "1e31"] * (self._care == 1)
        rows = [",".join(rng.choice(values) for _ in heading) for _ in range(rng.randint(1, 5))]
        self._instance, self.family = None, family_named("stage_partitioning")
        machine = {"--devices": "2", "--memory": "1GB", "--bandwidth": "1GB/s", "--microbatches": "4"}
        given = [name for name in machine if rng.random() < 1 - 0.1 * self._care]
        self._beside += [word for name in given for word in (name, machine[name])]
        return self._written(".csv", "\n".join([",".join(heading), *rows]))

    def _content(self) -> Any:
        self._instance = random_case(self.family.name, 0, self.rng.randrange(10**9))
        return self.family.to_json(self._instance)

    def _rows(self) -> str:
        rows = [json.dumps(self._content()) for _ in range(self.rng.randint(self._care < 1, 3))]
        text = "\n".join(rows)
        return self._written(".jsonl", mutated_text(text, self.rng) if text and self.rng.random() < 0.15 else text)

    def _sources(self) -> str:
        rng = self.rng
        drawn = ["knapsack:nodes=2..4", "layers:layers=3..5,stages=2", "knapsack:nodes=x", "layers:x=1..2", "*.json"]
        return rng.choices([self._instance_name(), self._rows(), rng.choice(drawn), "folder"], [6, 3, 2, 1])[0]

    def _solved(self) -> planner.Result | None:
        """What a quick method finds for the instance of this line, which is made where there is none."""
        if self._source is None:
            self._source = self._json(self._content(), 0.03)
        instance = self._instance
        if instance is None:
            return None
        fitting = [each for each in self.family.methods if each.supports(instance) is None]
        quick = [each.name for each in fitting if each.claim is Claim.HEURISTIC] or ["auto"]
        return planner.solve(instance, method=self.rng.choice(quick), limits=planner.Limits(time_s=0.3))

    def _plan(self) -> str:
        rng = self.rng
        found = self._solved() if rng.random() < 1 - 0.2 * self._care else None
        if found is None:
            return rng.choice([self._instance_name(), "none.json", self._json({"plan": None}), self._json([])])
        content = found.to_json()
        return self._json(content if rng.random() < 0.7 else content["plan"], 0.4)

    def _certificate(self) -> str:
        rng = self.rng
        found = None
        if rng.random() < 1 - 0.2 * self._care and self._solved() is not None and self.family.certificates is not None:
            found = planner.certify(self._instance).content
        if found is None:
            return rng.choice([self._instance_name(), "none.json", self._json({"format": 1})])
        return self._json(found, 0.6)

    def _solution(self) -> str:
        """Names and values, some of them of the model of this line."""
        rng = self.rng
        if self._source is None:
            self._source = self._json(self._content(), 0.0)
        names = ["x", "y(0)", "objective"]
        method = next((each.name for each in self.family.methods if each.name.startswith("milp")), None)
        if method is not None and self._instance is not None:
            path = self.folder / "model.json"
            _quietly(["model", str(self.folder / self._source), "--method", method, "--write", str(path)])
            if path.exists():
                names = [each["name"] for each in json.loads(path.read_text())["variables"]]
                self._beside += ["--method", method]
        if rng.random() < 0.1:
            names.append("none(1)")
        values = ["0", "1", "1", "2.5", "-1", "nan", "1e400", "x"] if rng.random() < 0.3 else ["0", "1"]
        lines = [f"{each} {rng.choice(values)}" for each in names]
        head = rng.choice([[], ["# Objective value = 1"], ["solution status: optimal", "objective value: 3"]])
        return self._written(".sol", "\n".join([*head, *lines]))

    def _model_file(self) -> str:
        suffixes = (".lp", ".mps", ".nl", ".json", ".pb.txt", ".txt", "")
        return f"written{self.rng.choice(suffixes)}"

    def _out(self, metavar: str) -> str:
        rng = self.rng
        if rng.random() < 0.3 * self._care:
            (self.folder / "folder").mkdir(exist_ok=True)
            return rng.choice(["folder", "none/out.json", "/dev/null", "/dev/full", "", ".", "out.txt", "1.json"])
        suffixes = [each for each in _suffixes(metavar) if each] or [".json", ".jsonl", "", ".parquet"]
        return f"out{rng.choice(suffixes)}"

    def _matrix(self) -> str:
        rng, size = self.rng, self.rng.choice([2, 2, 4])
        rows = [[0 if i == j else rng.choice([1, 10, 1e9]) for j in range(size)] for i in range(size)]
        text = "\n".join(",".join(map(str, row)) for row in rows)
        return self._written(".csv", mutated_text(text, rng) if rng.random() < 0.2 else text)

    def _suite(self) -> str:
        rng = self.rng
        case = {"instance": self._instance_name(), "methods": [self._method()]}
        text = json.dumps(mutated(case, rng) if rng.random() < 0.3 * self._care else case)
        return rng.choice([self._written(".jsonl", text), self._written(".jsonl", text), "piper", "none"])

    def _scenarios(self) -> str:
        rng = self.rng
        return self._json(
            rng.choice([[self._any_instance()], [{"memory": "1GB"}, {"devices": 2}], [self._content()], [{}], []]), 0.4
        )

    def _measurements(self) -> str:
        rng = self.rng
        rows = [
            f"m{row},{rng.choice([1e9, 1e12, 0, 5])},{rng.choice([1e6, 1e9, 0])},{rng.choice([1e-3, 2e-3, 1, 0])}"
            for row in range(rng.randint(0, 6))
        ]
        text = "\n".join(["name,flops,moved_bytes,seconds", *rows])
        return self._written(".csv", mutated_text(text, rng) if rng.random() < 0.3 else text)

    def _run(self) -> str:
        passes = [[0, "F", 0, 0.0, 1.0], [1, "F", 0, 1.0, 2.0], [1, "B", 0, 2.0, 4.0], [0, "B", 0, 4.0, 6.0]]
        run = {
            "instance": "two", "processes": 2, "bytes_sent": [8, 8], "bytes_planned": [8.0, 8.0], "held_bytes": [5, 7],
            "held_planned": [5.0, 7.0], "measured": passes, "simulated": passes, "resimulated_s": 6.0,
        }  # fmt: skip
        return self.rng.choice([self._json(run, 0.5), self._plan()])

    def _model(self) -> str:
        text = "def make():\n    import torch\n    return torch.nn.Linear(2, 2), (torch.zeros(1, 2),)\n"
        return f"{self._written('.py', text)}:{self.rng.choice(['make', 'make', 'none'])}"


def _suffixes(metavar: str) -> Iterable[str]:
    """Those that a metavar such as ``FILE.png|svg`` names."""
    return [f".{each}" for each in metavar.partition(".")[2].split("|")] if "." in metavar else []


@cache
def _settings(name: str) -> tuple[Any, ...]:
    """All settings of that name."""
    families = [each for family in FAMILIES for each in family.overrides]
    methods = [each for family in FAMILIES for method in family.methods for each in method.options]
    entries = [each for entry in CATALOG.values() for each in entry.parameters]
    return tuple(each for each in (*families, *methods, *entries) if each.name == name)


def _parses(setting: Any, text: str) -> bool:
    try:
        setting.parse(text)
    except ValueError:
        return False
    return True


def _quietly(words: list[str]) -> None:
    """A command whose file is wanted, and whose words are not."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main([*words, "--quiet"] if words[0] == "model" else words)

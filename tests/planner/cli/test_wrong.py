"""Command lines that are refused: one line on standard error, nothing on standard output, and no file is written."""

from collections.abc import Callable
from pathlib import Path

from thinned import thinned

from planner.cli import app

Problem = Callable[..., str]
Run = Callable[..., tuple[int, str, str]]

#: Of the command line itself. FILE stands for a file with an instance; a line that begins with words has ^ before them.
WORDS = {
    "solve": "^INSTANCE is missing; expected INSTANCE",
    "check chain8": "^PLAN.json is missing; expected PLAN.json",
    "certify chain8": "^--out is missing; expected FILE",
    "reproduce": "^CLAIM",
    "bench": "expected an INSTANCE or --suite",
    "bench FILE --suite absent.jsonl": "No such file",
    "hierarchy": "^the command is 'hierarchy'; expected solve --problem hierarchical_partitioning",
    "solv": "^the command is 'solv'; expected one of solve, ",
    "--versoin": "unknown option --versoin for planner; expected one of --version",
    "verify a b c": "^Got unexpected extra argument(s) (c)",
    "solve chain8 --seed": "^Option '--seed' requires an argument.",
    "solve chain8 --linearize --devices 4": "^--linearize is '--devices'; expected a value before the next option",
    "solve FILE --metod x": "unknown option --metod for planner solve; expected one of --method",
    "solve FILE --timelimit=3": "unknown option --timelimit for planner solve; expected one of --time-",
    "solve FILE -x": "unknown option -x for planner solve; expected one of --",
    f"solve FILE --{'x' * 99}": "xx' for planner solve; expected one of --",
    "crosscheck chain8 --method x": "^unknown option --method for planner crosscheck; expected one of",
    "list stage_partitioning --devices 3": "^unknown option --devices for planner list",
    "make method mesh_tiling --devices 3": "unknown option --devices for planner make method, which has none",
    "make method": "PROBLEM is 'nothing'; expected a problem of planner list",
    "make method none": "problem is 'none'; expected one of",
    "make template": "PROBLEM is 'nothing'; expected a problem of planner list",
    "make template none": "problem is 'none'; expected one of",
    "make chain8 mesh_tiling": "PROBLEM is 'mesh_tiling'; expected nothing behind the name of an instance",
}
#: Of names.
NAMES = {
    "solve bert31": "INSTANCE is 'bert31'; expected one of bert32, bert, bert-l, ...",
    "solve bert31 --help": "bert32",
    "solve nowhere/x.json": "No such file",
    "solve nowhere/x.json --help": "No such file",
    "list bert31": "^PROBLEM or INSTANCE is 'bert31'; expected one of bert32, bert, bert-l, ",
    "list flushed_part": "PROBLEM or INSTANCE is 'flushed_part'; expected one of flushed_partitioning, ",
    "make bert31": "expected one of bert32, bert, bert-l, ...",
    "reproduce piper-table-2": "CLAIM is 'piper-table-2'; expected one of piper-table-1, ",
    "solve FILE --problem flushed": "--problem is 'flushed'; expected one of counting",
    "solve FILE --method exakt": "^method is 'exakt'; expected one of exact, auto, patient, ...\n",
    "solve FILE --method ./mine.py": "^method is './mine.py'; expected FILE.py:FUNCTION\n",
    "solve FILE --method greedy --exact": "expected an exact method",
    "crosscheck FILE --methods exact,greddy": "expected one of greedy, ",
    "crosscheck chain8 --methods exact,exact": "^methods is 'exact, exact'; expected exact once\n",
    "crosscheck chain8 --methods ,": "expected",
    "solve chain8 --problem flushed_partitioning --virtual-stages 2": "not of flushed_partitioning: --problem training",
    "check FILE FILE": "picked is None",
    "check FILE absent.json": "absent.json: file is",
}
#: Of values and of what goes together.
VALUES = {
    "solve FILE --target x": "--target is 'x'; expected an integer",
    "solve FILE --devices 3": "unknown option --devices for counting; expected one of --target",
    "solve FILE --extra 3 --method exact": "unknown option --extra for method exact, which has none",
    "solve chain8 --stages 4": "unknown option --stages for stage_partitioning; expected one of --",
    "solve chain8 --forward-only": "unknown option --forward-only for stage_partitioning",
    "solve chain8 --schedule 1f1b": "add --problem flushed_partitioning",
    "solve schedule --resource cap": "^option is '--resource'; expected none: ",
    "solve chain8 --seed 1.5": "^--seed is '1.5'; expected a valid integer\n",
    "solve chain8 --time-limit long": "^--time-limit is 'long'; expected a valid number",
    "solve FILE --time-limit -1": "time_s is -1.0",
    "solve FILE --time-limit nan": "time_s is nan",
    "solve FILE --gap 1": "gap is 1.0",
    "solve FILE --threads 0": "threads is 0",
    "solve chain8 --method cpsat --threads 99999999999": "threads is",
    "solve FILE --seed -1": "seed is -1",
    "solve FILE --seed 2147483648": "expected 0 <= seed < 2",
    "bench chain8 --repeats 1 --threads 99999999999": "threads is",
    "bench chain8 --repeats 1 --seed -1": "seed is -1",
    "bench chain8 --seeds 0,-1": "seed",
    "bench chain8 --seeds 0,2147483648": "seed",
    "census chain8 --seed -1": "limits: seed is -1",
    "census chain8 --seed 2147483648": "limits: seed is 2147483648",
    "extract chain8 --sample 3 --out rows.jsonl --seed -5": "^limits: seed is -5; expected 0 <= seed < 2^31, an",
    "validate chain8 --out x --count 0": "^--count is '0'; expected greater than or equal to 1",
    "make chain8 --devices 0": "--devices is '0'",
    "model layers --layers 2 --stages 3 --method cpsat": "layers is 2; expected >= 3 stages",
    "model layers --layers 2 --stages 3 --method milp": "layers is 2; expected >= 3 stages",
    "model layers --read a.sol --root": "--read is 'a.sol'; expected neither --root nor --write with it",
    "model layers --read a.sol --write a.lp": "neither --root nor --write",
    "frontier chain8 --exactly": "--exactly",
    "frontier chain8 --time-limit -1": "limits: time_s is -1.0",
    "frontier bert32 --devices 100000 --microbatches 100000": "too much",
    **{f"frontier chain8 --memories {text}": "^--memories is " for text in ("8QB", "0", "", "4GiB,,8GiB", "-1GB")},
    **{
        f"sensitivity chain8 --noise {text}": f"^--noise is {text!r}; expected a share above 0 and below 100 %, such"
        for text in ("0", "0%", "1000%", "-1%", "nan", "much", "1")
    },
    "solve resnet50 --topology two-level --stages 1000 --replicas 1000": "1000000",
    "solve resnet50 --topology two-level --devices 4": "--stages",
    "solve diamond --trace trace.json": "--trace",
    "explain chain8 --noise 3": "--noise",
    "solve chain8 --alternatives 3 --method equi": "method is 'equi'; expected an exact method",
    "solve chain8 --exact --within -1%": "--within is '-1%'; expected a share",
    "solve chain8 --exact --within near": "--within is 'near'; expected a share",
    "solve chain8 --exact --alternatives 2 --gap 0.1": "--gap is 0.1; expected at most 1e-06",
    "solve dgx1 --alternatives 2 --count 3": "--count is '3'; expected none with --alternatives",
    "solve chain8 --alternatives 2 --pareto time,memory": "--pareto is 'time,memory'; expected none",
    "solve knapsack --exact --alternatives 2": "INSTANCE is 'tmpc_knapsack'; expected one of another problem; there",
    "solve resnet50 --devices 4 --exact --within 1%": "number of stages is free; give --stages",
    **{
        f"solve chain8 --exact --pareto {axes}": "expected time and at least one of memory, devices"
        for axes in ("time,energy", "memory,devices", "time", "time,time")
    },
    "solve chain8 --method piper --pareto time,memory": "expected an exact method",
    "solve layers --exact --pareto time,memory": "layer_assignment has no axis but time",
    "solve knapsack --exact --pareto time,memory": "there are answers for stage_partitioning",
    "solve chain8 --batch-size 4 --topology two-level": "--topology",
    "solve chain8 --batch-size 4 --trace trace.json": "--trace",
    "solve chain8 --batch-size 8 --grad-accum 1000001": "expected integers from 1 to 1000000",
    "solve chain8 --batch-size 100000000000000000000": "is 100000000000000000000; expected at most 1000000: ",
    "solve chain8 --batch-size 3000003 --grad-accum 5,3": "--batch-size is 3000003; expected at most 3000002: ",
    "census fig2 --crosscheck 2": "--crosscheck is 2",
    "census chain8 --sample 2": "--sample is 2",
    "census fig2 --against anneal": "--against is 'anneal'",
    "extract mesh --out rows.jsonl": "INSTANCE is 'mesh_tiling'",
    "extract fig2 --out rows.jsonl --from anneal": "--from is 'anneal'; expected",
    "extract fig2 --out rows.jsonl --problem mesh_tiling": "--problem is 'mesh_tiling'",
    "extract fig2 --out rows.parquet": "only knapsacks have columns",
    "extract fig2 --out rows.jsonl --nontrivial": "only knapsacks are sorted",
    "extract chain8 --out rows.jsonl --problem amp": "--problem is 'amp'",
    "extract chain8 --out rows.csv": "expected a name that ends in",
    "extract chain8 --out nowhere/rows.jsonl": "a folder that exists",
    "solve FILE --out nowhere/plan.json": "expected a file in a folder that exists",
    "solve chain8 --events nowhere/events.jsonl": "folder that exists",
    "solve FILE --out FILE": "expected a file other than the input",
    "solve FILE --out .": "not a folder",
    "reproduce piper-fig-3 --certify proofs": "--certify is 'proofs'; expected none: piper-fig-3 certifies no optima",
    "reproduce piper-fig-1 --devices 7": "--devices is 7; expected at least 8",
    "reproduce piper-fig-3 --devices 7": "--devices is 7; expected at least 8",
    "reproduce piper-flush --devices 7": "--devices is 7; expected at least 8",
    "reproduce graphpipe-fig-6 --models bert": "models is",
    "reproduce graphpipe-fig-6 --methods levels": "methods is",
    "reproduce graphpipe-table-1 --shapes figure": "shapes is",
    "reproduce graphpipe-a3 --devices 0": "devices is",
    "reproduce graphpipe-fig-5 --minibatch 6": "minibatch is",
    "reproduce graphpipe-case-study --memory much": "memory is",
    "reproduce graphpipe-table-2 --ratio 1": "ratio is",
    "reproduce graphpipe-table-2 --ratio 0:2": "ratio is",
    "reproduce graphpipe-table-2 --max 33": "max is",
    "reproduce graphpipe-table-2 --max x": "max is",
    "reproduce parmesan-table-2 --topologies ring": "topologies is",
    "reproduce parmesan-table-2 --objective both": "objective is",
    "reproduce parmesan-table-2 --time-limit -1": "time",
    "reproduce parmesan-fig-3 --panels x": "panels is",
    "reproduce parmesan-ablation --models vgg": "models is",
}


@thinned(("command", "words"), {**WORDS, **NAMES, **VALUES}.items())
def test_one_line(run: Run, problem: Problem, command: str, words: str) -> None:
    file = problem()
    before = Path(file).read_bytes()
    code, out, err = run(*[file if word == "FILE" else word for word in command.split(" ")])
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and words in f"^{err}"
    assert Path(file).read_bytes() == before and not list(Path().iterdir())


def test_every_command_has_examples() -> None:
    assert {line.split()[1] for line in app.EXAMPLES} == set(app._COMMANDS)

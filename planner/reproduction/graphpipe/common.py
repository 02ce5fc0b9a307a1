"""The claims of GraphPipe's evaluation that can be examined here (Table 2: ``graphpipe_schedules``)."""

from typing import Any

from formulations.contract.family import lazy
from instances.parameters import Setting, one_of, parse_amount, parse_count, parse_degrees, within
from instances.units import parse_bandwidth, parse_bytes
from planner.reproduction.claim import Claim
from planner.reproduction.graphpipe.plans import TERMINALS, methods, models

_code = lazy("planner.reproduction.graphpipe")

_PAPER = "GraphPipe"
_MOST_SAMPLES = 256


def _fours(value: Any) -> int:
    """Samples that micro-batches of 1, 2 and 4 divide."""
    if parse_count(value) % 4 or parse_count(value) > _MOST_SAMPLES:
        raise ValueError(f"a multiple of 4 up to {_MOST_SAMPLES}")
    return parse_count(value)


def _devices(default: str) -> Setting:
    return Setting("devices", parse_degrees, "device counts", metavar="4,8,...", default=default)


_ALL_DEVICES = _devices("4,8,16,32")
_TIME = Setting("time-limit", parse_amount, "seconds for each method and instance", metavar="SECONDS", default="60")
_BANDWIDTH = Setting("bandwidth", parse_bandwidth, "bytes per second of a link", metavar="B", default="12GB/s")
_MODELS = Setting("models", models, "only these models", metavar="NAME,...", default="all")
_METHODS = Setting("methods", methods, "only these methods", metavar="NAME,...", default="all")


_MEMORY = Setting("memory", parse_bytes, "memory per device", metavar="SIZE", default="15GB")


_NEAR = Setting(
    "near",
    parse_amount,
    "memory so many percent above the least with which pipedream has a plan, in place of --memory",
    metavar="PERCENT",
    default="off",
)

_TERMINALS = Setting(
    "terminals",
    one_of(*TERMINALS),
    "graphpipe: a branch or only the enclosing series may own an operator at which branches fork or join",
    metavar="|".join(TERMINALS),
    default=TERMINALS[0],
)


def _shapes(default: str) -> Setting:
    return Setting(
        "shapes",
        one_of("text", "appendix"),
        "branches as section 7.2 or as Appendix A.2 has them",
        metavar="text|appendix",
        default=default,
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "graphpipe-table-1",
        f"{_PAPER}, Table 1",
        "seconds and transitions of three searches on one cost model",
        _code.table_1.run,
        (_ALL_DEVICES, _MODELS, _shapes("text"), _TERMINALS, _TIME),
    ),
    Claim(
        "graphpipe-fig-2",
        f"{_PAPER}, Figure 2",
        "depth, samples in flight and iteration of a sequential and of a graph pipeline on three branches and a join",
        _code.fig_2.run,
    ),
    Claim(
        "graphpipe-fig-5",
        f"{_PAPER}, Figure 5",
        "one micro-batch size for all stages, or one for each: 12 or 10 samples in flight",
        _code.fig_5.run,
        (Setting("minibatch", _fours, "samples of an iteration (mini-batch)", metavar="B", default="32"),),
    ),
    Claim(
        "graphpipe-fig-6",
        f"{_PAPER}, Figure 6",
        "throughput of GraphPipe, two sequential pipelines and data parallelism",
        _code.fig_6.run,
        (_ALL_DEVICES, _MODELS, _METHODS, _MEMORY, _NEAR, _shapes("appendix"), _TERMINALS, _BANDWIDTH, _TIME),
    ),
    Claim(
        "graphpipe-fig-7",
        f"{_PAPER}, Figure 7",
        "throughput against the branches of CANDLE-Uno, and against micro-batch sizes of the multi-modal transformer",
        _code.fig_7.run,
        (
            _devices("4,8,16"),
            Setting("branches", parse_degrees, "branches of CANDLE-Uno", metavar="2,4,...", default="2,4,8,16"),
            Setting("microbatches", parse_degrees, "micro-batch sizes", metavar="1,2,...", default="all"),
            _METHODS,
            _MEMORY,
            _NEAR,
            _TERMINALS,
            _TIME,
        ),
    ),
    Claim(
        "graphpipe-fig-9",
        f"{_PAPER}, Figure 9",
        "what parallel stages gain at the sequential micro-batch size, and what a larger size adds",
        _code.fig_9.run,
        (_devices("32"), _MODELS, _MEMORY, _NEAR, _shapes("appendix"), _TERMINALS, _TIME),
    ),
    Claim(
        "graphpipe-case-study",
        f"{_PAPER}, section 7.5 and Figure 8",
        "two branches of four layers on eight devices: is the pipeline four stages deep?",
        _code.case_study.run,
        (
            Setting("minibatch", parse_count, "samples of an iteration (mini-batch)", metavar="B", default="128"),
            _MEMORY,
            _TIME,
        ),
    ),
    Claim(
        "graphpipe-a3",
        f"{_PAPER}, Appendix A.3",
        "throughput on a sequential transformer, where all pipelines should be equal",
        _code.a3.run,
        (
            _ALL_DEVICES,
            _METHODS,
            Setting(
                "speed", within(parse_amount, 0.01), "divide the times of all operators", metavar="FACTOR", default="1"
            ),
            _BANDWIDTH,
            _TIME,
        ),
    ),
    Claim(
        "graphpipe-complexity",
        f"{_PAPER}, section 5",
        "operations of a run of Algorithm 1 over growing models and devices, beside the printed time complexity",
        _code.complexity.run,
        (
            _devices("4,8,16,32"),
            Setting("layers", parse_degrees, "layers of a branch", metavar="2,4,...", default="2,4,8"),
            Setting("branches", parse_count, "branches of the multi-modal transformer", metavar="N", default="4"),
        ),
    ),
    Claim(
        "graphpipe-clock",
        f"{_PAPER}, Equation 1",
        "what the plan of the least bottleneck takes more than the shortest iteration, both proved",
        _code.clock.run,
        (_ALL_DEVICES, _TIME),
    ),
    Claim(
        "graphpipe-1f1b",
        f"{_PAPER}, section 6",
        "what 1F1B and GPipe's order take more than the best order at their memory, on chains of unequal stages",
        _code.orders.run,
        (
            Setting("chains", parse_count, "of each kind", metavar="N", default="4"),
            Setting("limit", parse_amount, "seconds for each run", metavar="SECONDS", default="10"),
        ),
    ),
)

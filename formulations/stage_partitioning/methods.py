"""The methods of stage partitioning: what they claim, where they come from, when they apply."""

from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.stage_partitioning import model_size
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.quantities import MODELLED
from formulations.stage_partitioning.model_size import (
    assignment_supports,
    blocks_effort,
    blocks_too_large,
    columns_effort,
    columns_supports,
)
from instances.parameters import choice
from instances.problems.stage_partitioning import StageInstance

_code = lazy("formulations.stage_partitioning")

#: More downsets than this are not enumerated.
MAX_DOWNSETS = 100_000

#: Most cells of the exact method's label table (downsets times sums of degrees), about 20 bytes each.
MAX_LABELS = 40_000_000

#: Most entries of the published program's table before pruning (a few percent of them are kept).
MAX_TABLE = 2_000_000_000

#: What both column models of a problem rest on, here and where pipelines are flushed (`Method.shares`).
PRICES = "priced stages"

LISTED = f"graphs of at most {MAX_DOWNSETS:,} downsets (fewer if memory is short)"
_TABLE = f"{LISTED}, where the table dp[D][k][s] has at most {MAX_TABLE:,} entries before pruning"
BLOCKS = f"instances with at most {model_size.MAX_CHOICES:,} choices of a node in a block; of larger ones a first plan"

_RULES = ("auto", "rerank", "sort-once", "truncating")

KNAPSACK = choice(
    "knapsack",
    _RULES,
    "rerank: as published; sort-once: as released, at most 2 TMPCs per (node, t); truncating: caps the gain; "
    "auto: sort-once under the released cost model where it applies, else rerank",
    default="auto",
)

CUTOFF = choice(
    "cutoff",
    ("none", "exact"),
    "none: as published; exact: what no plan better than one of the method `exact` can use is left out of the table "
    "(the same plans, other seconds)",
    default="none",
)

SYNC = choice(
    "sync",
    ("beside", "after"),
    "beside: weights are synchronised while a stage computes; after: then, as PipeDream's release has it",
    default="beside",
)

#: What decides which stages a plan may have, but not what their numbers are.
HONOURED = frozenset({"num_stages", "num_devices", "same_stage", "tp_degree_of", "dp_degree_of"})

choose = _code.exact.effort.choose

METHODS: tuple[Method[StageInstance, StagePlan], ...] = (
    heuristic(
        "piper",
        "Piper, section 4: dynamic program over downsets with a bang-per-buck knapsack",
        _code.paper.piper.solve,
        supports=_code.exact.effort.table_supports,
        limits=_TABLE,
        effort=_code.exact.effort.table_effort,
        options=(KNAPSACK, CUTOFF),
        threads=True,
    ),
    exact(
        "piper-exact-knapsack",
        "Piper, section 4, with exact knapsacks, which makes it exact (Appendix C)",
        _code.paper.piper.solve_exact_knapsack,
        supports=_code.exact.effort.table_supports,
        limits=_TABLE,
        effort=_code.exact.effort.table_effort,
        options=(CUTOFF,),
        threads=True,
    ),
    exact(
        "exact",
        "threshold search over downsets, made for this project (the package's README)",
        _code.exact.threshold.solve,
        supports=_code.exact.effort.exact_supports,
        limits=f"{LISTED}, where downsets times sums of data-parallel degrees are at most {MAX_LABELS:,}",
        effort=_code.exact.effort.labels_effort,
        honours=HONOURED,
        threads=True,
    ),
    declarative(
        _code.models.cpsat,
        "path of blocks, each a stage at its place, in CP-SAT, made for this project",
        MODELLED,
        supports=assignment_supports,
        too_large=blocks_too_large,
        limits=BLOCKS,
        effort=blocks_effort,
    ),
    declarative(
        _code.models.milp,
        "path of blocks, each a stage at its place, in Pyomo and HiGHS, made for this project",
        MODELLED,
        supports=assignment_supports,
        too_large=blocks_too_large,
        limits=BLOCKS,
        effort=blocks_effort,
    ),
    declarative(
        _code.models.cpsat_columns,
        "flow of priced stages over pairs of downsets in CP-SAT, made for this project",
        MODELLED,
        supports=columns_supports,
        limits=f"graphs of at most {model_size.MAX_DOWNSETS} downsets",
        effort=columns_effort,
        shares=PRICES,
    ),
    declarative(
        _code.models.milp_columns,
        "flow of priced stages over pairs of downsets in Pyomo and HiGHS, made for this project",
        MODELLED,
        supports=columns_supports,
        limits=f"graphs of at most {model_size.MAX_DOWNSETS} downsets",
        effort=columns_effort,
        shares=PRICES,
    ),
    exact(
        "realizable",
        "degrees enumerated, cuts by dynamic programs or the threshold search, made for this project",
        _code.exact.trainer_exact.solve,
        supports=_code.exact.effort.realizable_supports,
        limits="instances with the requirement realizable(TRAINER) (--realizable TRAINER) and no other",
        honours=frozenset({"realizable"}),
        needs="realizable(deepspeed)",
    ),
    heuristic(
        "linearised",
        "exact search over the stages of a few topological orders, in rounds, made for this project",
        _code.exact.interval_plans.solve,
        effort=_code.exact.effort.linearised_effort,
    ),
    heuristic(
        "equi", "Piper, section 5: equal groups of layers with the same degrees everywhere", _code.baselines.solve
    ),
    heuristic(
        "equi-no-tp",
        "Piper, section 5: equi without tensor parallelism, a surrogate for PipeDream-2BW",
        _code.baselines.solve_without_tp,
    ),
    heuristic(
        "pipedream",
        "PipeDream, SOSP 2019: a chain with data parallelism, memory unlimited; no plan if its own does not "
        "fit; found by the threshold search of `exact` in place of its recursion",
        _code.paper.pipedream.solve,
    ),
    heuristic(
        "pipedream-recursion",
        "PipeDream, SOSP 2019, by its own costs: the slowest computation, synchronisation or transfer",
        _code.paper.pipedream_recursion.solve,
        options=(SYNC,),
    ),
)

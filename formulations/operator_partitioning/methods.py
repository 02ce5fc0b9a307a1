"""The methods of operator partitioning: what they claim, where they come from, when they apply, and the choice."""

from formulations.contract.family import Method, declarative, exact, heuristic, lazy
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.quantities import VOCABULARY
from instances.parameters import Setting, flag, parse_amount, parse_count
from instances.problems.operator_partitioning import OperatorInstance

_code = lazy("formulations.operator_partitioning")

#: More downsets than this are not enumerated.
MAX_DOWNSETS = 250_000

#: Of graphs with more, so many downsets near a plan are searched for a better one.
NEAR = 3_000

#: Beyond these a model takes too long to build.
MODEL_BOOLEANS = 60_000

_MODEL = f"instances with a declared number of stages whose model has at most {MODEL_BOOLEANS:,} Booleans"

ALPHA = Setting("alpha", parse_amount, "weight of communication in clustering", metavar="A", default="0.001")

CLUSTERS = Setting(
    "clusters", parse_count, "number of clusters for the dynamic program", metavar="K", default="8 S, 64 to 256"
)

LOSSES = flag("report-losses", "report what each step loses against the optimum")

_FLOW_EFFORT = _code.effort.flow_effort

choose = _code.effort.choose

METHODS: tuple[Method[OperatorInstance, OperatorPlan], ...] = (
    heuristic(
        "parmesan",
        "Parmesan, section 4: clustering, dynamic programming, refinement",
        _code.paper.parmesan.solve,
        effort=_FLOW_EFFORT,
        options=(ALPHA, CLUSTERS, LOSSES),
    ),
    heuristic(
        "dp",
        "Parmesan, Equations 2 and 3 on the clustered graph, without refinement",
        _code.paper.parmesan.solve_dp,
        effort=_FLOW_EFFORT,
        options=(ALPHA, CLUSTERS),
    ),
    heuristic(
        "cluster",
        "Parmesan, section 4.2, until every cluster is a stage",
        _code.paper.parmesan.solve_cluster,
        effort=_FLOW_EFFORT,
        options=(ALPHA,),
    ),
    heuristic(
        "refine", "Parmesan, section 4.3, from the even cut", _code.paper.parmesan.solve_refine, effort=_FLOW_EFFORT
    ),
    exact(
        "exact",
        "thresholds over chains of all downsets, made for this project (the package's README)",
        _code.exact.solve,
        supports=_code.effort.exact_supports,
        limits=f"graphs of at most {MAX_DOWNSETS:,} downsets (fewer if memory is short); of larger ones, with the "
        "number of stages given, a plan near Parmesan's",
        effort=_code.effort.exact_effort,
    ),
    declarative(
        _code.models.cpsat,
        "assignment model in CP-SAT, made for this project",
        VOCABULARY,
        supports=_code.effort.model_supports,
        limits=_MODEL,
        effort=_code.effort.model_effort,
    ),
    declarative(
        _code.models.milp,
        "assignment model in Pyomo and HiGHS, made for this project",
        VOCABULARY,
        supports=_code.effort.model_supports,
        limits=_MODEL,
        effort=_code.effort.model_effort,
    ),
    heuristic(
        "pipedream",
        "PipeDream, SOSP 2019: the best intervals of one topological order",
        _code.paper.parmesan.solve_pipedream,
        effort=_FLOW_EFFORT,
    ),
    heuristic(
        "equal", "one topological order cut where the seconds are shared evenly", _code.paper.parmesan.solve_equal
    ),
    heuristic(
        "max-load-dp",
        "Tarnawski et al. 2020: dynamic program over all downsets, what leaves a stage counted once",
        _code.paper.parmesan.solve_max_load,
        supports=_code.effort.table_supports,
        limits=f"graphs of at most {MAX_DOWNSETS:,} downsets (fewer if memory is short), equally many replicas",
        effort=_code.effort.exact_effort,
    ),
)

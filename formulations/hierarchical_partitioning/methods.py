"""The methods of hierarchical partitioning: what they claim, where they come from, when they apply, and the choice."""

from __future__ import annotations

from formulations.contract.family import Claim, Method, lazy
from formulations.contract.quantities import names
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.methods import LISTED, PRICES
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.outcome import Limits

_ROOM = "formulations.hierarchical_partitioning"


#: Most cells of the table of labels (downsets times sums of degrees), about 16 bytes each.
MAX_LABELS = 40_000_000

#: For the models of columns: each pair of nested downsets is a possible superstage with many splits.
MAX_DOWNSETS = 200
#: Most superstages that are priced (8 bytes each), and most steps of their splits: minutes.
MAX_CELLS, MAX_STEPS = 5e7, 3e10

#: Larger CP-SAT models prove nothing within minutes.
MAX_TERMS = 200_000

#: What a plan's superstages decide without what is inside of them, which the columns price.
_OF_SUPERSTAGES = frozenset({"num_superstages", "num_machines", "superstage_of", "same_superstage"})
_COLUMNS = f"graphs of at most {MAX_DOWNSETS} downsets with at most {MAX_CELLS:.0e} superstages to be priced"


def choose(_instance: HierarchicalInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """The dispatcher's choice and its reason."""
    return "piper-hierarchical", "recursion over superstages and their splits inside a machine"


METHODS: tuple[Method[HierarchicalInstance, HierarchicalPlan], ...] = (
    Method(
        name="piper-hierarchical",
        claim=Claim.EXACT,
        source="Piper, Appendix E: recursion over superstages and their splits inside a machine, exact knapsacks",
        solve=lazy(f"{_ROOM}.paper:solve"),
        supports=lazy(f"{_ROOM}.effort:supports"),
        limits=f"{LISTED}, where downsets times sums of data-parallel degrees are at most {MAX_LABELS:,}",
        effort=lazy(f"{_ROOM}.effort:effort"),
        only_at_end=True,
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="direct assignment model in CP-SAT, made for this project",
        solve=lazy(f"{_ROOM}.models.cpsat:solve"),
        build=lazy(f"{_ROOM}.models.cpsat:build"),
        honours=names(VOCABULARY),
        supports=lazy(f"{_ROOM}.effort:model_supports"),
        limits=f"instances whose model has at most {MAX_TERMS:,} terms",
        effort=lazy(f"{_ROOM}.effort:model_effort"),
    ),
    Method(
        name="cpsat-columns",
        claim=Claim.EXACT,
        source="a path of priced superstages in CP-SAT, made for this project",
        solve=lazy(f"{_ROOM}.models.columns_cpsat:solve"),
        build=lazy(f"{_ROOM}.models.columns_cpsat:build"),
        honours=_OF_SUPERSTAGES,
        supports=lazy(f"{_ROOM}.effort:columns_supports"),
        limits=_COLUMNS,
        effort=lazy(f"{_ROOM}.effort:columns_effort"),
        shares=PRICES,
    ),
    Method(
        name="milp-columns",
        claim=Claim.EXACT,
        source="a path of priced superstages in Pyomo and HiGHS, made for this project",
        solve=lazy(f"{_ROOM}.models.columns_milp:solve"),
        build=lazy(f"{_ROOM}.models.columns_milp:build"),
        honours=_OF_SUPERSTAGES,
        supports=lazy(f"{_ROOM}.effort:columns_supports"),
        limits=_COLUMNS,
        effort=lazy(f"{_ROOM}.effort:columns_effort"),
        shares=PRICES,
    ),
)

"""Modules under the names that they had before 1.0: they are imported under their new ones, with a line that says so.

Users' methods and notebooks import definitions and instances by name, so that these names are kept. Standard library
only.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `planner`: this is imported before anything can be shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_PROBLEM = (
    "(amp_strategy|device_mapping|flushed_partitioning|hierarchical_partitioning|layer_assignment|mesh_tiling"
    "|microbatch_schedule|operator_partitioning|pipeline_placement|stage_graph|stage_partitioning|tmpc_knapsack)"
)
_PACKAGES = ("planner", "formulations", "instances")
#: Old names as patterns, and what took their place.
_NAMES = {
    rf"instances\.{_PROBLEM}": r"instances.problems.\1",
    r"instances\.(branching|operator_graphs|topologies|transformer)": r"instances.generators.\1",
    rf"formulations\.{_PROBLEM}\.(problem|settings)": r"formulations.\1.definition.\2",
    rf"formulations\.{_PROBLEM}\.plans": r"formulations.\1.definition.plan",
    rf"formulations\.{_PROBLEM}\.checker": r"formulations.\1.certificate.checker",
    rf"formulations\.{_PROBLEM}\.(cpsat|milp)": r"formulations.\1.models.\2",
    r"formulations\.family": "formulations.contract.family",
    r"planner\.(errors|signals)": r"planner.process.\1",
    r"planner\.result": "planner.results.result",
    r"planner\.run": "planner.solving.solve",
}


def current_name(name: str) -> str | None:
    """What a module of this old name is called now; ``None`` for any other name."""
    import re

    for old, new in _NAMES.items():
        if found := re.fullmatch(old, name):
            return found.expand(new)
    return None


class _Renamed:
    """A finder and loader; it comes last, so that it gets only names that nothing else finds."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _PACKAGES or current_name(fullname) is None:
            return None
        from importlib.util import spec_from_loader

        return spec_from_loader(fullname, self)  # type: ignore[arg-type]

    def create_module(self, _spec: ModuleSpec) -> None:
        return None  # a plain one, which is not kept

    def exec_module(self, module: ModuleType) -> None:
        from importlib import import_module

        new = current_name(module.__name__)
        assert new is not None
        sys.stderr.write(f"{module.__name__} is {new} now: import it under that name\n")
        sys.modules[module.__name__] = import_module(new)


def keep_old_names() -> None:
    """Let old names be imported from now on."""
    if not any(isinstance(finder, _Renamed) for finder in sys.meta_path):
        sys.meta_path.append(_Renamed())

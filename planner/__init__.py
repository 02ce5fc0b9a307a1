"""Choice and judgement: load an instance, solve it with the method that fits, crosscheck methods.

Everything a command of ``planner`` does is one call here. Names are imported when they are first used, so that
``planner --help`` answers at once.

>>> import planner
>>> instance = planner.load("chain8", devices=4)
>>> result = planner.solve(instance, exact=True, limits=planner.Limits(time_s=10))
>>> result.status, result.verified
(<Status.OPTIMAL: 'optimal'>, True)
"""

from __future__ import annotations

import sys

try:
    import resource
except ImportError:  # not on Windows, which has no such limits
    pass
else:  # where a file may have so many bytes only (ulimit -f), Python would leave bytecode that is cut off
    sys.dont_write_bytecode |= resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
    del resource

TYPE_CHECKING = False  # typing takes longer to import than all that the command line needs before it notes signals

if TYPE_CHECKING:
    from typing import Any

    __version__: str

    from planner.brought.registry import method
    from planner.certificates import Certification, Verification, certify, verify
    from planner.checking import Verdict, check
    from planner.comparison import Report, crosscheck
    from planner.errors import CrosscheckError, UsageError
    from planner.graphs import from_networkx, to_networkx
    from planner.inputs.loading import load
    from planner.mining.mine import Mined, mine
    from planner.open_model import model
    from planner.populations.run import Validation, validate
    from planner.result import Result
    from planner.run import solve
    from planner.saving import save
    from planner.show import plots
    from planner.studies.difference import Difference, diff
    from planner.studies.explaining import Explanation, explain
    from planner.studies.formulations import formulations
    from planner.studies.sensitivity import Sensitivity, sensitivity
    from planner.trainers.exporting import Exported, export
    from solvers.outcome import Limits, Status, Stop

_HOMES = {
    "planner.brought.registry": ("method",),
    "planner.certificates": ("Certification", "Verification", "certify", "verify"),
    "planner.checking": ("Verdict", "check"),
    "planner.comparison": ("Report", "crosscheck"),
    "planner.errors": ("CrosscheckError", "UsageError"),
    "planner.graphs": ("from_networkx", "to_networkx"),
    "planner.inputs.loading": ("load",),
    "planner.mining.mine": ("Mined", "mine"),
    "planner.open_model": ("model",),
    "planner.populations.run": ("Validation", "validate"),
    "planner.result": ("Result",),
    "planner.run": ("solve",),
    "planner.saving": ("save",),
    "planner.studies.difference": ("Difference", "diff"),
    "planner.studies.explaining": ("Explanation", "explain"),
    "planner.studies.formulations": ("formulations",),
    "planner.studies.sensitivity": ("Sensitivity", "sensitivity"),
    "planner.trainers.exporting": ("Exported", "export"),
    "solvers.outcome": ("Limits", "Status", "Stop"),
}

__all__ = [
    "Certification",
    "CrosscheckError",
    "Difference",
    "Explanation",
    "Exported",
    "Limits",
    "Mined",
    "Report",
    "Result",
    "Sensitivity",
    "Status",
    "Stop",
    "UsageError",
    "Validation",
    "Verdict",
    "Verification",
    "certify",
    "check",
    "crosscheck",
    "diff",
    "explain",
    "export",
    "formulations",
    "from_networkx",
    "load",
    "method",
    "mine",
    "model",
    "plots",
    "save",
    "sensitivity",
    "solve",
    "to_networkx",
    "validate",
    "verify",
]

#: Public modules that have their home elsewhere.
_MODULES = {"plots": "planner.show.plots"}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it."""
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version  # takes longer to import than all of the above

        return version("dnn-planner")
    if name in _MODULES:
        return import_module(_MODULES[name])
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]


def _show_in_notebooks() -> None:
    """Where IPython runs, it shows results, comparisons and instances as pictures."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        from planner.show.notebook import register

        register(shell)


_show_in_notebooks()

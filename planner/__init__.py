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

from instances.renamed import keep_old_names

keep_old_names()

TYPE_CHECKING = False  # typing takes longer to import than all that the command line needs before it notes signals

if TYPE_CHECKING:
    from typing import Any

    __version__: str

    from planner.analysis.compare_models import formulations
    from planner.analysis.difference import Difference, diff
    from planner.analysis.explain import Explanation, explain
    from planner.analysis.least import solve_least
    from planner.analysis.model_view import model
    from planner.analysis.sensitivity import Sensitivity, sensitivity
    from planner.display import plots
    from planner.experiments.mining.mine import Mined, mine
    from planner.experiments.validation.run import Validation, validate
    from planner.files.load import load
    from planner.files.networkx_graphs import from_networkx, to_networkx
    from planner.plugins.registry import method
    from planner.process.errors import CrosscheckError, UsageError
    from planner.results.check import Verdict, check
    from planner.results.frames import to_frame
    from planner.results.result import Result
    from planner.results.save import save
    from planner.solving.certify import Certification, Verification, certify, checker, verify
    from planner.solving.compare import Report, crosscheck
    from planner.solving.solve import solve
    from planner.training.trainers.exporting import Exported, export
    from solvers.outcome import Limits, Status, Stop

_HOMES = {
    "planner.plugins.registry": ("method",),
    "planner.solving.certify": ("Certification", "Verification", "certify", "checker", "verify"),
    "planner.results.check": ("Verdict", "check"),
    "planner.solving.compare": ("Report", "crosscheck"),
    "planner.process.errors": ("CrosscheckError", "UsageError"),
    "planner.files.networkx_graphs": ("from_networkx", "to_networkx"),
    "planner.files.load": ("load",),
    "planner.experiments.mining.mine": ("Mined", "mine"),
    "planner.analysis.least": ("solve_least",),
    "planner.analysis.model_view": ("model",),
    "planner.experiments.validation.run": ("Validation", "validate"),
    "planner.results.frames": ("to_frame",),
    "planner.results.result": ("Result",),
    "planner.solving.solve": ("solve",),
    "planner.results.save": ("save",),
    "planner.analysis.difference": ("Difference", "diff"),
    "planner.analysis.explain": ("Explanation", "explain"),
    "planner.analysis.compare_models": ("formulations",),
    "planner.analysis.sensitivity": ("Sensitivity", "sensitivity"),
    "planner.training.trainers.exporting": ("Exported", "export"),
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
    "checker",
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
    "solve_least",
    "to_frame",
    "to_networkx",
    "validate",
    "verify",
]

#: Public modules that have their home elsewhere.
_MODULES = {"plots": "planner.display.plots"}


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
        from planner.display.notebook import register

        register(shell)


_show_in_notebooks()

"""How to run a model: backends that know models and no problem. `BACKENDS` is the one list of them.

A new backend is a file here and a line in the list; tests/solvers/test_backends.py tests it.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from solvers.external import process
from solvers.external.messages import OWN_CPSAT, OWN_HIGHS
from solvers.trust.known_models import Canary


@dataclass(frozen=True)
class Backend:
    """A solver that can be run, imported only when it is used.

    ``name``: the solver's name, for users.
    ``module``: has ``run(model, limits, watch) -> Run``, ``version()`` and ``knows(option)``; ``known_models`` beside
    it has ``CANARIES``.
    ``distribution``: the package that carries it.
    ``models``: what kind of model it takes.
    ``process``: the name of its process (`solvers.external.process`).
    """

    name: str
    module: str
    distribution: str
    models: str
    process: str

    def start(self) -> None:
        """Let its process begin to start, if none waits for a model."""
        process.start(self.process)

    def prepare(self) -> None:
        """Wait until its process takes models: before a clock starts."""
        process.prepare(self.process)

    def load(self) -> Any:
        """The module, imported."""
        return importlib.import_module(self.module)

    def version(self) -> str:
        """Name and version of the solver."""
        return str(self.load().version())

    def canaries(self) -> tuple[Canary, ...]:
        """Small models of known outcome."""
        found: tuple[Canary, ...] = importlib.import_module(f"{self.module.rpartition('.')[0]}.known_models").CANARIES
        return found


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("cpsat", "solvers.cpsat.backend", "ortools", "ortools CpModel", process=OWN_CPSAT),
        Backend("highs", "solvers.milp.backend", "highspy", "Pyomo ConcreteModel", process=OWN_HIGHS),
    )
}

"""Run a MILP with a solver of one's choice, as `solvers.milp.backend` runs it with HiGHS, from outside its process.

What it proves of a model with integers it proves twice, in two orders of rows and columns and with two seeds, as HiGHS
does (`prove_twice`): its search works in floats with tolerances too, and less is known here of its wrong proofs than
of HiGHS's, of which none has been seen in both orders. One that has contradicted a plan, or a solution of its own, is
not believed for the rest of the run (`Watch.doubt`): its solutions, which are checked, count, and none of its proofs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from solvers.callback_bridge import Relay
from solvers.external import process
from solvers.external.matrix import Matrix
from solvers.external.messages import FAILURES, Ended, Outcome, Task
from solvers.outcome import OPTIMAL_GAP, Limits, OnBound, OnSolution, Run, Watch
from solvers.trust.prove_twice import prove_twice, report_run, without_proof
from solvers.values import Values


def run(
    lp: Any,
    columns: Mapping[int, int],
    has_objective: bool,
    limits: Limits,
    watch: Watch,
    on_solution: OnSolution,
    on_bound: OnBound,
    known: Mapping[int, float],
) -> Run:
    """Run ``limits.solver`` on a ``HighsLp``; arguments and errors otherwise as of `solvers.milp.backend.run`.

    ``columns``: by a variable's id.
    ``known``: a hint, by columns.
    """
    found = prove_twice(
        _Call(has_objective, limits, watch, on_solution).once, lp, columns, known, limits.seed, on_bound
    )
    if watch.doubted:  # nothing that it claims is believed
        found = replace(found, bound=None, infeasible=False, stop=without_proof(found.stop))
    return report_run(found, on_bound)


def run_relaxation(lp: Any, columns: Mapping[int, int], has_objective: bool, limits: Limits, watch: Watch) -> Run:
    """Run ``limits.solver`` on a ``HighsLp`` without whole numbers, once."""
    return _Call(has_objective, limits, watch, None).run_matrix(Matrix.of(lp).relaxed(), columns, {}, None)


@dataclass(frozen=True)
class _Call:
    """What both runs have in common."""

    has_objective: bool
    limits: Limits
    watch: Watch
    on_solution: OnSolution

    def once(
        self, lp: Any, columns: Mapping[int, int], hint: Mapping[int, float], on_bound: OnBound, is_second: bool
    ) -> Run:
        """One run; the second one with another seed."""
        limits = replace(self.limits, seed=(self.limits.seed + 1) % 2**31) if is_second else self.limits
        return replace(self, limits=limits).run_matrix(Matrix.of(lp), columns, hint, on_bound)

    def run_matrix(
        self, matrix: Matrix, columns: Mapping[int, int], hint: Mapping[int, float], on_bound: OnBound
    ) -> Run:
        """Run it on a matrix; a solver that fails is run again with another seed."""
        relay = Relay(self.on_solution, on_bound if self.has_objective else None)
        for seed in (self.limits.seed, (self.limits.seed + 1) % 2**31):
            task = self._task(matrix, hint, seed)
            end, version = self._end_of(matrix, task, columns, relay)
            relay.finish()
            if end.outcome not in FAILURES or self.watch.stopped():
                break
        if end.outcome is Outcome.UNBOUNDED:
            raise ValueError("the model is unbounded; expected a bounded objective")
        return self._read(matrix, end, version, columns)

    def _task(self, matrix: Matrix, hint: Mapping[int, float], seed: int) -> Task:
        limits = self.limits
        return Task(
            matrix,
            gap=limits.gap if limits.gap > OPTIMAL_GAP else 0.0,
            seed=seed,
            threads=limits.threads,
            options=limits.solver_options,
            hint=tuple(hint.items()),
            log=limits.solver_log,
        )

    def _end_of(self, matrix: Matrix, task: Task, columns: Mapping[int, int], relay: Relay) -> tuple[Ended, str]:
        name = self.limits.solver
        if len(matrix.costs) == 0:  # some file formats cannot say this
            outcome = Outcome.INFEASIBLE if matrix.is_refuted else Outcome.SOLVED
            return Ended(outcome, np.zeros(0), matrix.offset, matrix.offset), name
        return process.run_task(name, task, self.watch, relay, lambda values: Values(columns, values))

    def _read(self, matrix: Matrix, end: Ended, version: str, columns: Mapping[int, int]) -> Run:
        outcome, found = end.outcome, end.values is not None
        infeasible = outcome is Outcome.INFEASIBLE
        if infeasible and found:
            self.watch.doubt("calls a model infeasible of which it has a solution")
            outcome, infeasible = Outcome.FAILED, False
        objective = end.objective if found and self.has_objective else None
        bound = end.bound if self.has_objective and not infeasible else None
        failed = end.outcome in FAILURES
        if end.outcome is Outcome.ABORTED:
            self.watch.aborted(f"{version} failed: {end.words}")
        return Run(
            stop=process.stop_of(
                outcome, objective, bound, self.limits, self.watch, self.has_objective, matrix.is_minimum
            ),
            values=Values(columns, end.values) if found else None,
            objective=objective,
            bound=bound,
            infeasible=infeasible,
            solver=version,
            reason=f"{version} failed: {end.words}" if failed else "",
            stats={"variables": len(matrix.costs), "constraints": len(matrix.least), **end.stats},
        )

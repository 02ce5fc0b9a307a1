"""The MILP's search by targets: groups of devices, and then the devices themselves, refute or meet each of them.

Where bandwidths are few the objective takes few values. With a target for it all numbers of the model are 0 and 1, and
its relaxation no longer mixes fast links with slow ones, as it does with the slowest stage as the objective
(`milp.build`). What groups of devices forbid, the devices forbid, too; they have fewer places and far fewer symmetries.
"""

from __future__ import annotations

from dataclasses import replace

from formulations.contract.family import Answer
from formulations.device_mapping.annealing.baselines import pipeline_major, stage_major
from formulations.device_mapping.data.arrays import Arrays
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.models.bisect_gap import Gap, Verdict, close, objective_values, thread_clock
from formulations.device_mapping.models.classes import FEW_LEVELS, Places, TooManyError, devices_as_places
from formulations.device_mapping.models.machine_groups import groupings, places_of
from formulations.device_mapping.models.symmetry import orbits
from formulations.device_mapping.models.threshold_model_milp import LevelMilp
from formulations.modelling.solve_model import Stopped
from solvers.outcome import Limits, Prover, Stop, Watch

#: What rounding alone may add to a target.
_ROUNDING = 1e-9


def has_few_values(given: Arrays) -> bool:
    """Whether the objective takes few enough values for a search by targets."""
    return len(given.levels) <= FEW_LEVELS and objective_values(given) is not None


def search(given: Arrays, limits: Limits, watch: Watch) -> Answer[Mapping]:
    """Decide targets from the watch's best plan and consecutive mappings on, until the best one is proved."""
    gap = Gap(given, watch, objective_values(given), limits.gap, Prover.SOLVER)
    for plan in (stage_major(given.instance), pipeline_major(given.instance)):
        gap.offer(plan)
    targets = Targets(given, gap, limits)
    watch.bound(0.0, Prover.BOUNDS)  # nothing takes less, so a plan that takes no time needs no proof
    close(gap, targets.decide, part=0.5)
    stop = Stop.PROVED if gap.closed else watch.why(Stop.COMPLETED)
    stats = {**dict(sorted(gap.counts.items())), "search_nodes": targets.nodes}
    return Answer(
        watch.best_plan, watch.best_bound, stop=stop, solver=targets.solver, reason=targets.reason, stats=stats
    )


class Targets:
    """What the search keeps from target to target: ``met[n]`` is the least one that the n-th places do not refute."""

    def __init__(self, given: Arrays, gap: Gap, limits: Limits) -> None:
        self.given, self.gap, self.limits = given, gap, limits
        self.places = [places_of(given, groups) for groups in groupings(given)]
        self.places.append(devices_as_places(given, orbits(given)))
        self.met = [float("inf")] * len(self.places)
        self.nodes = 0
        self.solver = self.reason = ""

    def decide(self, target: float, seconds: float) -> Verdict:
        """Refuted by groups or devices, met by devices, or left open after so many seconds of computing."""
        verdict = Verdict.OPEN
        for number, places in enumerate(self.places):
            if target < self.met[number] and verdict is not Verdict.REFUTED:
                verdict = self._decide_at(number, places, target, seconds)
        return verdict

    def _decide_at(self, number: int, places: Places, target: float, seconds: float) -> Verdict:
        computed = thread_clock()
        end = computed() + seconds
        watch = self.gap.watch.part(
            silent=True, obsolete=lambda: self.gap.upper <= target or self.gap.lower >= target or computed() >= end
        )
        try:
            model = LevelMilp(self.given, places, target, watch)
        except TooManyError:
            return Verdict.BEYOND
        except Stopped:
            return Verdict.OPEN

        def report(values: object) -> None:
            self.met[number] = min(self.met[number], target)
            if places.single and self.gap.offer(model.decode(values)) > target * (1 + _ROUNDING):
                raise RuntimeError("the model of a target accepts a mapping that is slower")

        run = model.run(replace(self.limits, threads=1, gap=0.0), watch, report, lambda _: None)
        self.nodes += int(run.stats.get("search_nodes", 0))
        self.solver, self.reason = run.solver or self.solver, run.reason
        if run.values is not None:
            report(run.values)
        if self.met[number] <= target:
            return Verdict.MET if places.single else Verdict.OPEN
        return Verdict.REFUTED if run.infeasible else Verdict.OPEN

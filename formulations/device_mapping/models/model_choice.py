"""Models that decide a target, chosen by the structure of an instance; all of them run CP-SAT.

- rings alone: cycles as columns where they are few, cycles as sets of links where they are short, else the level model,
  which then is a model of positions
- few bandwidths: the level model
- many bandwidths, no rings: the layered flow; where its solutions do not close to replicas the level model
- many bandwidths, edges and rings: the level model with bandwidths rounded up, which refutes and never meets, and then
  the level model itself where it can be written down
"""

from dataclasses import replace

from formulations.device_mapping.bounds.combinatorial import Domains, rings_fit
from formulations.device_mapping.data.arrays import Arrays, plan_of
from formulations.device_mapping.models.bisect_gap import Decide, Gap, Verdict, thread_clock
from formulations.device_mapping.models.classes import (
    FEW_LEVELS,
    Places,
    TooManyError,
    devices_as_places,
    round_up_speeds,
)
from formulations.device_mapping.models.cycles import LONGEST, CycleModel, TooManyCyclesError
from formulations.device_mapping.models.flow import FlowModel, chords
from formulations.device_mapping.models.links import LinkModel, num_links
from formulations.device_mapping.models.symmetry import orbits
from formulations.device_mapping.models.threshold_model import LevelModel
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run

#: Models with more variables than this are not built.
_MAX_LITERALS, _MAX_ARCS = 120_000, 400_000


class TargetModels:
    """What a run keeps from target to target: the gap, limits, and the symmetries of the topology.

    Cores, components and arc consistency are tried before a model is built, and shrink it.
    """

    def __init__(self, arrays: Arrays, gap: Gap, limits: Limits) -> None:
        self.arrays, self.gap, self.limits = arrays, gap, limits
        self.few = len(arrays.levels) <= FEW_LEVELS
        self._orbits = orbits(arrays)
        self.branches = self.conflicts = 0
        #: Name and version of the solver, once it has run.
        self.solver = ""

    def choose(self) -> dict[str, Decide]:
        """The models that fit the instance, by name, in the order in which they should be tried."""
        given = self.arrays
        if not given.edges and given.has_rings:
            few = {"cycles": self.cycles} if self.few and 2 < given.replicas <= LONGEST else {}
            fits = given.num_devices**2 <= _MAX_LITERALS
            short = {"links": self.links} if given.replicas <= 5 or not fits else {}
            return {**few, **short, "level": self.level}
        if self.few or not given.edges:
            return {"level": self.level}
        if given.has_rings:
            return {"rounded": self.rounded_level, "level": self.level}
        if not chords(given.num_stages, [edge[:2] for edge in given.edges])[0]:
            return {"flow": self.flow}
        return {"flow": self.flow, "level": self.level}

    def level(self, target: float, seconds: float) -> Verdict:
        """The level model on devices."""
        return self.level_at(self.arrays, devices_as_places(self.arrays, self._orbits), target, seconds)

    def rounded_level(self, target: float, seconds: float) -> Verdict:
        """The level model with bandwidths rounded up to a few."""
        return self.level_at(round_up_speeds(self.arrays), None, target, seconds)

    def places(self, places: Places, target: float, seconds: float) -> Verdict:
        """The level model on groups of devices: a refutation is a proof."""
        return self.level_at(self.arrays, places, target, seconds)

    def level_at(self, arrays: Arrays, places: Places | None, target: float, seconds: float) -> Verdict:
        """The level model; plans count where the places are the instance's own devices."""
        domains = Domains(self.arrays, target)
        if not (domains.possible and self._rings_fit(target)):
            return Verdict.EXCLUDED
        places = places or devices_as_places(arrays)
        if len(places.capacity) * arrays.num_devices > _MAX_LITERALS:
            return Verdict.BEYOND
        try:
            model = LevelModel(arrays, places, target, domains.allowed if places.single else None)
        except TooManyError:
            return Verdict.BEYOND
        run = self._run(model, target, seconds)
        if run.values is None:
            return Verdict.REFUTED if run.infeasible else Verdict.OPEN
        if arrays is not self.arrays or not places.single:
            return Verdict.BEYOND
        rows, orders = model.decode(run.values)
        if orders is None and arrays.has_rings:
            self._offer_rings(rows)
        else:
            self.gap.offer(plan_of(rows, orders))
        return Verdict.MET

    def cycles(self, target: float, seconds: float) -> Verdict:
        """An exact cover by cycles, rings alone."""
        if not self._rings_fit(target):
            return Verdict.EXCLUDED
        try:
            model = CycleModel(self.arrays, target)
        except TooManyCyclesError:
            return Verdict.BEYOND
        run = self._run(model, target, seconds)
        if run.values is None:
            return Verdict.REFUTED if run.infeasible else Verdict.OPEN
        self._offer_rings(model.decode(run.values))
        return Verdict.MET

    def links(self, target: float, seconds: float) -> Verdict:
        """Cycles as sets of links, rings alone; short cycles are cut off as they come."""
        if not self._rings_fit(target):
            return Verdict.EXCLUDED
        if num_links(self.arrays, target) > _MAX_LITERALS:
            return Verdict.BEYOND
        model = LinkModel(self.arrays, target)
        end = self.gap.watch.elapsed_s() + seconds
        while True:
            run = self._run(model, target, end - self.gap.watch.elapsed_s())
            if run.values is None:
                return Verdict.REFUTED if run.infeasible else Verdict.OPEN
            found = model.decode(run.values)
            if not model.cut_off(found):
                self._offer_rings([stage[0] for stage in found])
                return Verdict.MET

    def _rings_fit(self, target: float) -> bool:
        return not self.arrays.has_rings or rings_fit(self.arrays, target)

    def _offer_rings(self, rows: list[list[int]]) -> None:
        """Devices by stage in the order of their rings."""
        order = list(range(self.arrays.replicas))
        free = self.arrays.instance.ring == "free"
        self.gap.offer(plan_of(rows, [order] * len(rows) if free else None))

    def flow(self, target: float, seconds: float) -> Verdict:
        """The layered flow."""
        domains = Domains(self.arrays, target)
        if not domains.possible:
            return Verdict.EXCLUDED
        if sum(int(arcs.sum()) for arcs in domains.arcs) > _MAX_ARCS:
            return Verdict.BEYOND
        model = FlowModel(self.arrays, target, domains)
        run = self._run(model, target, seconds)
        if run.values is None:
            return Verdict.REFUTED if run.infeasible else Verdict.OPEN
        devices = model.decode(run.values)
        if devices is None:
            return Verdict.BEYOND
        self.gap.offer(plan_of(devices))
        return Verdict.MET

    def _run(self, model: cpsat.Runnable, target: float, seconds: float) -> Run:
        """Run one model for some seconds of computing; a better plan from elsewhere ends it."""
        computed = thread_clock()
        end = computed() + seconds
        part = self.gap.watch.part(obsolete=lambda: self._is_decided(target) or computed() >= end)
        run = model.run(replace(self.limits, threads=1, gap=0.0), part)
        self.solver = run.solver or self.solver
        self.branches += int(run.stats.get("branches", 0))
        self.conflicts += int(run.stats.get("conflicts", 0))
        return run

    def _is_decided(self, target: float) -> bool:
        """Whether a target was met or refuted meanwhile."""
        return self.gap.upper <= target or self.gap.lower >= target

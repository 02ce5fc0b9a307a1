"""Lower bounds on the bottleneck over all micro-batch sizes, and the search for the optimum above them.

``simple_bound`` is the larger of the work of all devices and the slowest operator, and takes no time. ``prove`` narrows
the gap between a plan and the bound by deciding which targets are possible, for a relaxation (`EqualBranches`), so
the search ends with a proof, or with the smallest target that the relaxation does not exclude.
"""

import math
from dataclasses import dataclass, field, replace

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.quantities import judge
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, violations
from formulations.stage_graph.upsets.branches import EqualBranches, UnsuitableError, largest
from solvers.outcome import OPTIMAL_GAP, Prover, Watch

#: A target this much below a known plan's, relatively, is another target.
_STEP = 1e-8
#: A bound is this much below the target that was excluded, for the order in which costs are summed.
_ROUNDING = 1e-9
#: Every stage keeps this many seconds per sample, whatever the amounts that instances may have.
_ANY_S = 1e100
#: The method whose proof a bound by `EqualBranches` is.
DOWNSETS = "downsets"
#: Pairs of upsets for which a bound costs a few hundredths of a second.
CHEAP_PAIRS = 200_000


def simple_bound(costs: Costs, watch: Watch | None = None) -> float:
    """Seconds per sample that no plan of the instance goes below, at any micro-batch size and schedule.

    Once the ``watch`` is stopped no further operators are considered; the bound of those before is one, too.
    """
    instance = costs.instance
    shared = [costs, *(Costs(instance, t) for t in instance.tp_degrees[1:])]
    # Of t devices each works as long; seconds per sample do not rise with the samples.
    busy = [[own.tp_degree * own.work_s(1 << v) for own in shared if not own.lacking >> v & 1]
            for v in range(instance.num_operators) if len(shared) > 1]  # fmt: skip
    together = math.fsum(map(min, busy)) if busy else costs.work_s(costs.everything)
    work = together / instance.num_devices * (1 - _ROUNDING)
    if watch is not None and watch.stopped():
        return work
    stages = [
        (own, size, degree, -(-size // degree))
        for own in shared
        for size in largest(instance.microbatch_sizes)
        for degree in range(1, min(instance.num_devices // own.tp_degree, size) + 1)
    ]
    slowest = 0.0
    for node in range(instance.num_operators):
        takes = [
            own.compute_s(1 << node, samples) / size + own.all_reduce(1 << node, degree) / instance.minibatch
            for own, size, degree, samples in stages
            if not own.lacking >> node & 1
        ]
        slowest = max(slowest, min(takes))
        if watch is not None and watch.stopped():
            break
    return max(work, slowest * (1 - _ROUNDING))


@dataclass
class Proof:
    """What is known: the best plan and its seconds per sample, what no plan goes below, and no plan of some sizes.

    ``open_size``: the size that was possible last, which is asked first.
    """

    bound_s: float
    plan: StagePlan | None = None
    value_s: float = float("inf")
    infeasible: bool = False
    stopped: bool = False
    refuted: dict[tuple[int, ...], float] = field(default_factory=dict)
    open_size: int = 0

    @property
    def is_closed(self) -> bool:
        """Nothing is left to prove."""
        return self.infeasible or (self.plan is not None and self.value_s <= self.bound_s * (1 + OPTIMAL_GAP))


def prove(
    costs: Costs,
    relaxation: EqualBranches,
    watch: Watch,
    known: Proof,
    gap: float = OPTIMAL_GAP,
    by: str = Prover.SEARCH,
) -> Proof:
    """Raise the bound and improve the plan until they meet, the relaxation excludes no more, or the watch stops.

    ``by``: whose proof is reported to the watch.
    """
    proof = replace(known, refuted={}, open_size=known.plan.stages[0].microbatch if known.plan else 0)
    if proof.plan is None and not _may_be_possible(costs, relaxation, proof, _ANY_S):
        proof.infeasible, proof.bound_s = True, known.bound_s
        return proof
    open_s = proof.value_s * (1 - _STEP)  # the smallest target that is not excluded, as far as is known
    if proof.plan is None:
        open_s = proof.bound_s or _STEP
        while not proof.stopped and not _may_be_possible(costs, relaxation, proof, open_s):
            open_s *= 2
    probe, before = open_s, proof.value_s
    while open_s - proof.bound_s > gap * open_s and not proof.stopped:
        outcome = _may_be_possible(costs, relaxation, proof, probe)
        if proof.value_s < before:
            open_s, before = min(open_s, proof.value_s * (1 - _STEP)), proof.value_s
            watch.plan(proof.plan, proof.value_s)
            probe = open_s
            continue
        if outcome:
            open_s = min(open_s, probe)
        elif not proof.stopped:
            watch.bound(proof.bound_s, by)
        probe = (proof.bound_s + open_s) / 2
    return proof


def _may_be_possible(costs: Costs, relaxation: EqualBranches, proof: Proof, target_s: float) -> bool:
    """Whether the target may be possible at any size; what comes out of it is noted in the proof.

    Where stages may have sizes of their own, all sizes are one question: each stage takes at least the least of what
    it takes with any of them. With a stage behind it, it keeps two micro-batches in flight or the whole mini-batch
    then, too. Were it one, its second forward pass would come after its first backward pass, and so after that of the
    stage behind it, which would wait between the two (Appendix A.1 has it never wait).
    """
    sizes = sorted(costs.instance.microbatch_sizes, key=lambda size: (size != proof.open_size, -size))
    is_mixed = costs.instance.schedule != "uniform" and len(sizes) > 1
    questions = [tuple(sizes)] if is_mixed else [(size,) for size in sizes]
    while questions := [each for each in questions if target_s > proof.refuted.get(each, -math.inf)]:
        relaxation.at_once(target_s, questions)
        least = relaxation.least(target_s, questions[0])
        if least is not None and least > costs.instance.num_devices:
            proof.refuted[questions[0]] = target_s
            continue
        proof.stopped = least is None
        if not (is_mixed or proof.stopped):
            proof.open_size, plan = questions[0][0], relaxation.plan(questions[0][0])
            if not judge(violations, costs.instance, plan) and bottleneck_s(costs.instance, plan) < proof.value_s:
                proof.plan, proof.value_s = plan, bottleneck_s(costs.instance, plan)
        return True
    proof.bound_s = max(proof.bound_s, target_s * (1 - _ROUNDING))
    return False


def cheap_bound(costs: Costs, watch: Watch, plan: StagePlan) -> tuple[float, str]:
    """A bound on the objective that costs next to nothing, and whose it is: by `EqualBranches` where these are few.

    Else it is `simple_bound`. An iteration takes at least as long as its slowest stage is busy.
    """
    instance = costs.instance
    samples = instance.minibatch if instance.objective == "iteration" else 1
    start = Proof(simple_bound(costs, watch), plan, bottleneck_s(instance, plan))
    if watch.stopped() or len(instance.tp_degrees) > 1:  # the branches know no operators that devices share
        return start.bound_s * samples, Prover.BOUNDS
    try:
        relaxation = EqualBranches(costs, watch, max_pairs=CHEAP_PAIRS)
    except UnsuitableError:
        return start.bound_s * samples, Prover.BOUNDS
    with alarm(watch):
        found = prove(costs, relaxation, Watch(), start, 1e-4)
    return found.bound_s * samples * (1 - _ROUNDING), whose(found, start, DOWNSETS)


def whose(proof: Proof, start: Proof, by: str) -> str:
    """Whose means proved what is proved: ``by``, unless the bound is still the one that the search began with."""
    return by if proof.infeasible or proof.bound_s > start.bound_s else Prover.BOUNDS

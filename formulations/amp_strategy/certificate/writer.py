"""Certificates of training strategies: caps for each chain of layers that is left of degrees and placement."""

from fractions import Fraction
from typing import Any

from formulations.amp_strategy.certificate import checker
from formulations.contract.certificates import Proved, certifies
from formulations.contract.checker.chain import Chain
from formulations.contract.family import UncertifiedError
from formulations.layer_assignment.certificate.writer import rows_above
from instances.problems.amp_strategy import AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance, TiedParameters
from solvers.outcome import Watch


@certifies(checker.CHECKER)
def write(_instance: AmpInstance, exact: checker.Instance, T: Fraction | None, watch: Watch) -> Proved:
    """`certificate` of a plan and a bound."""
    chains = [] if T is None else _chains(exact, T, watch)
    return None if chains is None else (T, {"kind": "caps", "chains": chains})


def _chains(exact: checker.Instance, B: Fraction, watch: Watch) -> list[Any] | None:
    """The rows of the chains that need some, as `checker` reads them; ``None`` if some plan takes no more than B."""
    found: list[Any] = []
    caps = 0
    for number, chain in enumerate(exact.chains()):
        rows = rows_above(_floats(chain), chain, B, watch)
        if rows is None:
            return None
        caps += sum(1 + len(each) for _, each in rows)
        if max(caps, number) >= checker.MAX_CAPS:
            raise UncertifiedError(f"more than {checker.MAX_CAPS} caps would be needed")
        if rows != [(None, [])]:
            texts = [[None if most is None else str(most), list(map(str, each))] for most, each in rows]
            found.append([number, texts])
    return found


def _floats(chain: Chain) -> LayerAssignmentInstance:
    """The chain in seconds, and parameters in its own unit."""
    return LayerAssignmentInstance(
        name="chain",
        layer_time_s=tuple(t / chain.unit for t in chain.times[0]),
        stage_time_s=tuple(tuple(t / chain.unit for t in row) for row in chain.times) if any(chain.same) else (),
        cut_cost_s=tuple(tuple(e / chain.unit for e in row) or (0.0,) for row in chain.cuts),
        num_stages=chain.S,
        num_microbatches=chain.N,
        parameters=tuple(map(float, chain.sizes)),
        tied=tuple(TiedParameters(tuple(sorted(held)), float(size)) for held, size in chain.tied),
        ring_s_per_parameter=tuple(map(float, chain.rings)),
    )

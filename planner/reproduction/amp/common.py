"""The claims of AMP that can be examined here."""

from collections.abc import Callable

from formulations.contract.family import lazy
from instances.parameters import Setting, parse_amount, parse_count
from planner.reproduction.claim import Claim, Evidence, Note

_code = lazy("planner.reproduction.amp")


def _experiment(name: str) -> Callable[[str | None, Note], Evidence]:
    def run(inputs: str | None, note: Note) -> Evidence:
        found: Evidence = _code.experiment.run(name, inputs, note)
        return found

    return run


_WHAT = "{}: every strategy as released, with the best layer assignment, and with the best for the whole step"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "amp-homogeneous",
        "AMP, supplement, Tables 6 and 7",
        _WHAT.format("GPT-2 on four G4 nodes"),
        _experiment("homogeneous"),
    ),
    Claim(
        "amp-het-cluster",
        "AMP, supplement, Tables 8 and 9",
        _WHAT.format("GPT-2 on three P3 nodes and a G4 node"),
        _experiment("het_cluster"),
    ),
    Claim(
        "amp-het-model",
        "AMP, supplement, Tables 10 and 11",
        _WHAT.format("TransGAN on four P3 nodes"),
        _experiment("het_model"),
    ),
    Claim(
        "amp-clock",
        "AMP, Equation 4",
        "what strategies that are best by Equation 4 take more than the shortest simulated iteration, both proved",
        _code.clock.run,
        options=(
            Setting("batch", parse_count, "leave out larger batches", metavar="B", default="256"),
            Setting("limit", parse_amount, "seconds for each run", metavar="SECONDS", default="30"),
        ),
    ),
)

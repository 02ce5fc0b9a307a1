"""The claims about orders that trainers run: which are optimal at their memory, and how far the others are."""

from instances.parameters import Setting, parse_amount, parse_count
from planner.reproduction.claim import Claim
from planner.reproduction.pipelines import distance, interleaving, zero_bubble

_LIMIT = Setting("limit", parse_amount, "seconds for each run", metavar="SECONDS", default="5")

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "zero-bubble-orders",
        "Qi et al. 2024, ZB-H1, ZB-H2 and ZB-V",
        "is each the best order at the memory that it takes, for several ratios of F, B and W?",
        zero_bubble.run,
        (_LIMIT,),
    ),
    Claim(
        "interleaved-memory",
        "Narayanan et al. 2021, section 2.2",
        "what several chunks on a device gain at the memory of 1F1B, and how much more the interleaved order takes",
        interleaving.run,
        (_LIMIT,),
    ),
    Claim(
        "1f1b-distance",
        "Narayanan et al. 2021, section 2.2",
        "what 1F1B takes more than the best order at its memory, with split backward passes, and on devices in a V",
        distance.run,
        (Setting("chains", parse_count, "of unequal stages, of each kind", metavar="N", default="4"), _LIMIT),
    ),
)

"""The claims about planners that the papers compare with: what each finds, and what it loses."""

from dataclasses import replace

from instances.parameters import Setting, parse_amount, parse_count
from planner.reproduction.baselines import alpa_submeshes, amp_budget, max_load, pipedream, trainers, zero_bubble
from planner.reproduction.claim import Claim

_LIMIT = Setting("limit", parse_amount, "seconds for each run", metavar="SECONDS", default="5")

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "pipedream-vgg16",
        "PipeDream, partition of VGG-16",
        "PipeDream's recursion on its own profile beside the stages of its release",
        pipedream.released,
    ),
    Claim(
        "pipedream-loss",
        "PipeDream, section 3.1",
        "what PipeDream's costs lose by Piper's: its plan, the best one of its space, and the best one of all",
        pipedream.losses,
    ),
    Claim(
        "zero-bubble-auto",
        "Qi et al. 2024, section 3.1",
        "what the automatic scheduler loses against the best order at the same memory",
        zero_bubble.run,
        (Setting("chains", parse_count, "of unequal stages, of each kind", metavar="N", default="4"), _LIMIT),
    ),
    Claim(
        "max-load-dp",
        "Tarnawski et al. 2020",
        "what the max-load dynamic program over all downsets loses where a tensor counts at each stage that takes it",
        max_load.run,
        (replace(_LIMIT, default="60"),),
    ),
    Claim(
        "max-load-ip",
        "Tarnawski et al. 2020, integer programs",
        "what contiguous devices lose against devices that hold any operators",
        max_load.run_splits,
        (replace(_LIMIT, default="60"),),
    ),
    Claim(
        "amp-budget",
        "AMP, Algorithm 2, run(record, budget)",
        "what is won by running the best strategies of AMP's ranking, simulated",
        amp_budget.run,
        (replace(_LIMIT, default="30"),),
    ),
    Claim(
        "alpa-galvatron",
        "Alpa, section 5.2; Galvatron; UniAP",
        "what their programs lose against the shortest iteration, with one pair of degrees",
        trainers.run,
        (replace(_LIMIT, default="60"),),
    ),
    Claim(
        "alpa-submeshes",
        "Alpa, section 5.2, submeshes",
        "whether its program has the least sum of its submeshes, and what any number of devices would gain",
        alpa_submeshes.run,
    ),
)

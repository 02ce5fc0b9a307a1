"""The claims of Piper that can be examined here."""

from dataclasses import replace

from formulations.contract.family import lazy
from instances.parameters import Setting, one_of, parse_amount, parse_count, parse_degrees
from planner.reproduction.claim import Claim

_code = lazy("planner.reproduction.piper")

_PAPER = "Piper"

_DEVICES = Setting("devices", parse_count, "leave out larger clusters", metavar="K", default="2048")
_COST_MODEL = Setting(
    "cost-model",
    one_of("paper", "released"),
    "cost of synchronisation and degrees allowed",
    metavar="paper|released",
    default="paper",
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "piper-table-1",
        f"{_PAPER}, Table 1",
        "Piper and equi on GNMT and Resnet50, every printed digit, beside the optimum on the graph",
        _code.table_1.run,
        certifies=True,
    ),
    Claim(
        "piper-fig-1",
        f"{_PAPER}, Figure 1",
        "throughput of Piper and five baselines on BERT-32 relative to the optimum",
        _code.fig_1.run,
        certifies=True,
        options=(
            _DEVICES,
            Setting(
                "setting",
                one_of("ours", "release"),
                "ours: nine numbers of devices, N = 512, the paper's costs; release: seven, N = 1920, its own",
                metavar="ours|release",
                default="ours",
            ),
            Setting("microbatches", parse_count, "micro-batches of a batch", metavar="N", default="the setting's"),
            replace(_COST_MODEL, default="the setting's"),
        ),
    ),
    Claim(
        "piper-fig-2",
        f"{_PAPER}, Figure 2",
        "time per sample of BERT-32 for every number of devices, from one run for each of two N",
        _code.fig_2.run,
        options=(
            _DEVICES,
            Setting("memory", str, "memory per device", metavar="SIZE", default="8GiB"),
            Setting("bandwidth", str, "bytes per second of each device", metavar="B", default="25GB/s"),
            replace(_COST_MODEL, default="released"),
        ),
    ),
    Claim(
        "piper-fig-3",
        f"{_PAPER}, Figure 3",
        "CPU seconds that planning takes, against devices and layers; the release: 32,48,64,96 and 480,512,1920,2048",
        _code.fig_3.run,
        options=(
            _DEVICES,
            Setting("layers", parse_degrees, "transformer layers of BERT", metavar="L,...", default="32,64"),
            Setting("microbatches", parse_degrees, "micro-batches of a batch", metavar="N,...", default="512,2048"),
            Setting(
                "repeats",
                one_of("1", "2", "3", "5", "release"),
                "runs of each setting; release: 5, and 3 above 600 devices",
                metavar="R|release",
                default="1",
            ),
            Setting("memory", str, "memory per device; the release's file has 80GB", metavar="SIZE", default="80GB"),
            Setting("bandwidth", str, "bytes per second of each device", metavar="B", default="25GB/s"),
            Setting("limit", parse_amount, "seconds for each run", metavar="SECONDS", default="60"),
        ),
    ),
    Claim(
        "piper-fig-4",
        f"{_PAPER}, section 3.4 and Figure 4",
        "predicted time per sample of 16 hand-made configurations of BERT-32 on 64 devices, beside the release's",
        _code.fig_4.run,
        certifies=True,
    ),
    Claim(
        "piper-fig-5",
        f"{_PAPER}, Figure 5",
        "PipeDream-2BW's schedule with degrees of their own for each stage: order, micro-batches in flight, all slots",
        _code.fig_5.run,
    ),
    Claim(
        "piper-appendix-c",
        f"{_PAPER}, Appendix C",
        "the knapsack heuristic on all instances of a BERT-32 run, beside their optima",
        _code.appendix_c.run,
        certifies=True,
        options=(
            Setting("devices", parse_count, "number of devices, and of micro-batches", metavar="K", default="512"),
            Setting(
                "setting",
                one_of("all", "release"),
                "all: every instance; release: those of which its sample is a third, N = 1920 and y = 2",
                metavar="all|release",
                default="all",
            ),
        ),
    ),
    Claim(
        "piper-flush",
        f"{_PAPER}, section 6 (future work)",
        "what flushes cost on BERT-32: the plan that is best without them, the best one with them, and a simulation",
        _code.flush.run,
        options=(
            Setting("devices", parse_count, "leave out larger clusters", metavar="K", default="512"),
            Setting("memory", str, "memory per device", metavar="SIZE", default="8GiB"),
            Setting("limit", parse_amount, "seconds for each run", metavar="SECONDS", default="60"),
        ),
    ),
    Claim(
        "piper-clock",
        f"{_PAPER}, section 6 (future work)",
        "what plans that are best by a formula of a flushed batch take more than the shortest iteration, both proved",
        _code.clock.run,
        options=(
            Setting("devices", parse_count, "leave out larger clusters", metavar="K", default="64"),
            Setting("limit", parse_amount, "seconds for each run", metavar="SECONDS", default="30"),
        ),
    ),
)

"""Training strategies: degrees, micro-batch, placement and layer assignment of a model on a cluster of unlike nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from formulations.amp_strategy.plans import plan_from_json, plan_to_json
from formulations.amp_strategy.problem import StrategyPlan, evaluate, strategies, violations
from formulations.family import Claim, Family, Method, OwnJson, Setting, lazy
from formulations.layer_assignment import JOINT_LAYERS, PROGRAM_STATES, program_states
from instances.amp_strategy import PLACEMENTS, AmpInstance, check, to_json
from instances.parameters import one_of, parse_count, within
from instances.units import parse_bandwidth
from solvers.outcome import Limits

_JSON = OwnJson("amp_strategy", AmpInstance, "instances.readers.amp_strategy_json:read")

_OVERRIDES = (
    Setting("global-batch", parse_count, "samples of a training step", metavar="B"),
    Setting(
        "inter-bandwidth", within(parse_bandwidth, 1e-30), "bytes per second between any two nodes", metavar="RATE"
    ),
    Setting("placement", one_of(*PLACEMENTS), "how ranks may be placed on devices", metavar="|".join(PLACEMENTS)),
)

#: All tilings are listed; beyond so many devices there are too many.
_TILED_DEVICES = 16


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> AmpInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad."""
    instance = _JSON.read(content, where)
    rate = overrides.get("inter-bandwidth")
    return replace(
        instance,
        global_batch=overrides.get("global-batch") or instance.global_batch,
        placement=overrides.get("placement") or instance.placement,
        nodes=tuple(replace(node, inter_bytes_per_s=rate or node.inter_bytes_per_s) for node in instance.nodes),
        options={**instance.options, **overrides},
    )


def describe(instance: AmpInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    return {
        "layers": len(instance.layers),
        "nodes": len(instance.nodes),
        "devices": instance.num_devices,
        "global_batch": instance.global_batch,
        "placement": instance.placement,
    }


def choose(instance: AmpInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """The exhaustive search, milliseconds for each strategy; Megatron's if it is too large."""
    too_large = None if exact else _exhaustible(instance)
    if too_large is not None and _listable(instance) is None:
        return "megatron", f"too large for the exhaustive search ({too_large})"
    return "exhaustive", "all degrees, each with its best layer assignment"


def _listable(instance: AmpInstance) -> str | None:
    if instance.placement != "megatron" and instance.num_devices > _TILED_DEVICES:
        return f"{instance.num_devices} devices; expected at most {_TILED_DEVICES} where tilings are listed"
    return None


def _exhaustible(instance: AmpInstance) -> str | None:
    if len(instance.layers) > JOINT_LAYERS:
        return f"{len(instance.layers)} layers; expected at most {JOINT_LAYERS}"
    return _listable(instance)


def _programmable(instance: AmpInstance) -> str | None:
    layers = len(instance.layers)
    stages = max((each.pp_degree for each in strategies(instance) if each.pp_degree <= layers), default=0)
    states = program_states(layers, stages)
    if states > PROGRAM_STATES:
        return f"{states:g} states of the published program at {stages} stages; expected at most {PROGRAM_STATES:g}"
    return _listable(instance)


_TOP = Setting("top", parse_count, "how many strategies the ranked list holds", metavar="N", default="10")
_ITERATIONS = Setting("iterations", parse_count, "random tilings or strategies", metavar="N", default="300")


def _method(
    name: str, claim: Claim, source: str, solve: str, supports: Callable[[AmpInstance], str | None], *options: Setting
) -> Method[AmpInstance, StrategyPlan]:
    return Method(
        name=name,
        claim=claim,
        source=source,
        solve=lazy(f"formulations.amp_strategy.search:{solve}"),
        supports=supports,
        effort=lambda instance: 1e6 * instance.num_devices * len(instance.layers),
        options=(_TOP, *options),
    )


METHODS = (
    _method(
        "exhaustive",
        Claim.EXACT,
        "all strategies, each with exact-joint, pruned by bounds",
        "solve_exhaustive",
        _exhaustible,
    ),
    _method("amp", Claim.HEURISTIC, "AMP, section 6.2, Algorithm 1", "solve_amp", _programmable),
    _method(
        "amp-released", Claim.HEURISTIC, "the same with the released layer assignment", "solve_released", _programmable
    ),
    _method("amp-sa", Claim.HEURISTIC, "AMP, section 6.3, Algorithm 2", "solve_annealing", _programmable, _ITERATIONS),
    _method("megatron", Claim.HEURISTIC, "Megatron's placement and split for all degrees", "solve_megatron", _listable),
)

FAMILY: Family[AmpInstance, StrategyPlan] = Family(
    name="amp_strategy",
    recognise=_JSON.recognise,
    read=read,
    overrides=_OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda _: "s",
    methods=METHODS,
    choose=choose,
    describe=describe,
)

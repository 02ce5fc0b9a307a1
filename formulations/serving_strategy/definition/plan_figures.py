"""A server in figures: what a request takes of every stage, what its devices hold, and what an operator measures."""

from typing import Any

from formulations.contract.figures.plan_figures import Breakdown, Stack, stages_of
from formulations.serving_strategy.definition import problem
from formulations.serving_strategy.definition.plan import ServingPlan
from instances.problems.serving_strategy import ServingInstance


def breakdown(instance: ServingInstance, plan: ServingPlan) -> Breakdown:
    """Every stage, and the figures of vLLM's benchmark."""
    t, r = plan.tp_degree, plan.replicas
    work = [problem.stage_work_s(instance, plan, *own) for own in plan.stages]
    prompt = [sum(problem.prefill_s(instance, each, t) for each in instance.layers[slice(*own)]) for own in plan.stages]
    head = [0.0] * (plan.pp_degree - 1) + [problem.head_work_s(instance, t, plan.batch)]
    cache = [problem.cache_bytes(instance, plan, *own) for own in plan.stages]
    held = [problem.stage_bytes(instance, plan, *own) for own in plan.stages]
    rest = [a - b for a, b in zip(held, cache, strict=True)]
    rows: list[dict[str, Any]] = [
        {"layers": list(range(*own)), "request_s": work[i], "cache_bytes": cache[i], "memory_bytes": held[i]}
        for i, own in enumerate(plan.stages)
    ]
    figures = {
        "tokens_per_s": r * instance.generated_tokens / each if (each := problem.replica_s(instance, plan)) else None,
        "first_token_alone_s": problem.first_token_s(instance, t, plan.pp_degree),
        "between_tokens_s": problem.token_s(instance, plan),
        "whole_request_s": problem.request_s(instance, plan),
        "sequences_of_replica": plan.sequences,
    }
    decode = [max(0.0, a - b - c) for a, b, c in zip(work, prompt, head, strict=True)]
    stages = stages_of(work, [f"tp {t}"] * plan.pp_degree, [r] * plan.pp_degree)
    times = Stack("Time of a request by stage", stages, {"prompt": prompt, "decode steps": decode, "head": head},
                  "time of a request", "s")  # fmt: skip
    memory = Stack("Memory by stage", stages, {"weights and activations": rest, "KV cache": cache},
                   "memory of a device", "bytes", limits=[instance.memory_bytes] * plan.pp_degree)  # fmt: skip
    used = r * t * plan.pp_degree
    return Breakdown(tuple(rows), figures, lambda: (times, memory), degrees=[(r, t)] * plan.pp_degree,
                     devices=(used, instance.num_devices))  # fmt: skip

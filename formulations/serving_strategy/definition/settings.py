"""What a caller may change of an instance of serving strategies, and how it is described."""

from collections.abc import Callable
from typing import Any

from formulations.serving_strategy.definition.problem import degrees
from instances.parameters import Setting, one_of, parse_count, parse_degrees, parse_search_timeout
from instances.problems.serving_strategy import ServingInstance
from instances.units import parse_bytes

#: What is minimised.
MINIMISES = {
    "throughput": "time per generated token of all replicas (at best)",
    "latency": "time of a request (at best)",
}


_SETTINGS: tuple[tuple[str, Callable[[Any], Any], str, str, str], ...] = (
    ("devices", parse_count, "devices of all machines", "N", "num_devices"),
    ("memory", parse_bytes, "what a device may hold of weights, cache and activations", "SIZE", "memory_bytes"),
    ("prompt", parse_count, "tokens of a prompt", "TOKENS", "prompt_tokens"),
    ("generated", parse_count, "tokens that a request generates", "TOKENS", "generated_tokens"),
    ("requests", parse_count, "sequences at once that are served at least", "N", "requests"),
    ("batches", parse_degrees, "sequences of a decode step that there may be, such as 1,8,64", "LIST", "batches"),
    (
        "first-token-limit",
        parse_search_timeout,
        "seconds to the first token at most",
        "SECONDS|none",
        "first_token_limit_s",
    ),
    ("token-limit", parse_search_timeout, "seconds between tokens at most", "SECONDS|none", "token_limit_s"),
    ("objective", one_of(*MINIMISES), "what is minimised", "|".join(MINIMISES), "objective"),
)
OVERRIDES = tuple(Setting(name, parse, says, metavar=form, field=own) for name, parse, says, form, own in _SETTINGS)


def num_shapes(instance: ServingInstance) -> int:
    """Degrees and batches that there may be, whatever the layers of stages."""
    stages = sum(min(len(instance.layers), instance.num_devices // t) for t in degrees(instance))
    return stages * len(instance.batches)


def describe(instance: ServingInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "layers": len(instance.layers),
        "devices": instance.num_devices,
        "tensor-parallel degrees": ", ".join(map(str, degrees(instance))),
        "request": f"{instance.prompt_tokens} tokens, {instance.generated_tokens} generated",
        "degrees and batches": num_shapes(instance),
    }

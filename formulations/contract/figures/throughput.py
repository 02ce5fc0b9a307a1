"""What a plan of an imported or profiled model does in a second: samples and tokens, and its share of the peak."""

from collections.abc import Mapping

from instances.generators.hardware import HARDWARE
from instances.problems.stage_partitioning import StageInstance
from instances.rules import Fact


def throughput(instance: StageInstance, time_per_microbatch: float) -> dict[str, float | int]:
    """Figures of a batch, as far as the instance says what it was made of.

    ``instance``: its ``options`` have the samples of a micro-batch (``microbatch``), tokens of a sample (``seq-len``),
    operations of a forward pass of a micro-batch (``forward-flops``), ``hardware`` and ``dtype``: each may be absent.
    ``time_per_microbatch``: the objective, in the instance's unit.
    Returns: ``batch_samples`` and ``batch_tokens``; ``samples_per_s``, or ``tokens_per_s``; ``mfu_share``, three
    forward passes of the model in the time, over the peak rate of all K devices. Recomputation counts as no operation
    of the model.
    Source: Reconstructed: Chowdhery et al., PaLM (2022), who are cited for model FLOP utilisation, were not at hand.
    """
    facts, N = instance.options, instance.num_microbatches
    b, tokens = _number(facts, "microbatch"), _number(facts, "seq-len")
    seconds = time_per_microbatch * (1e-3 if instance.time_unit == "ms" else 1.0)
    if b is None or seconds <= 0 or "first" in facts:  # the figures are those of the whole model
        return {}
    found: dict[str, float | int] = {"batch_samples": int(N * b)}
    if tokens is not None:
        found |= {"batch_tokens": int(N * b * tokens), "tokens_per_s": b * tokens / seconds}
    else:
        found["samples_per_s"] = b / seconds
    device, flops = HARDWARE.get(str(facts.get("hardware"))), _number(facts, "forward-flops")
    peak = None if device is None else device.peak_flop_per_s.get(str(facts.get("dtype")))
    if flops is not None and peak is not None:
        found["mfu_share"] = 3 * flops / (seconds * instance.num_devices * peak)
    return found


def samples(instance: StageInstance, time_per_sample: float) -> dict[str, float]:
    """Samples per second of an instance that does not say how many its micro-batches have: its times are of a sample.

    >>> from instances.problems.stage_partitioning import StageInstance
    >>> samples(StageInstance("two", (), (), 1, 1.0, 1.0, 1, time_unit="ms"), 2.0)
    {'samples_per_s': 500.0}
    """
    seconds = time_per_sample * (1e-3 if instance.time_unit == "ms" else 1.0)
    return {"samples_per_s": 1 / seconds} if seconds > 0 and "microbatch" not in instance.options else {}


def _number(facts: Mapping[str, Fact], name: str) -> float | None:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None

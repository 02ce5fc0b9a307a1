"""Galvatron: its JSON of strategies, which has a tensor-parallel degree and recomputation for each layer.

Stages may have different degrees, but as many devices each. One degree (``vtp``) is that of the embedding and the head.

Source: galvatron/models/*/configs/galvatron_config_*.json and galvatron/utils/config_utils.py (cea12ff, 2026-06-16).
What `_OURS` names is for people and for `read`: Galvatron takes it from its launcher and command line.
"""

import json
from itertools import accumulate

from planner.training.trainers.checked import CHECKED
from planner.training.trainers.layout import DECODER, Layer, Layout, Stage, between_ends

_OURS = ("world_size", "micro_batch_size", "seq_length", "checked")


def write(layout: Layout) -> str:
    """The JSON. Stages of ``layout`` have a decoder layer and as many devices; first and last have one tp_degree."""
    rows = layout.decoders()
    tp = [stage.tp_degree for stage, row in zip(layout.stages, rows, strict=True) for _ in row]
    flags = [int(layer.recompute) for row in rows for layer in row]
    batch = layout.batch
    ours = (layout.world_size, batch.samples, batch.tokens, CHECKED["galvatron"].says())
    content = {
        "pp_deg": layout.pp_degree,
        "tp_sizes_enc": _join(tp),
        "tp_consecutive_flags": _join([1] * len(tp)),
        "dp_types_enc": _join([0] * len(tp)),
        "use_sp": _join([0] * len(tp)),
        "checkpoint": _join(flags),
        "global_bsz": batch.global_samples,
        "chunks": batch.microbatches,
        "pp_division": _join([len(row) for row in rows]),
        "pipeline_type": "gpipe" if layout.schedule == "gpipe" else "pipedream_flush",
        "default_dp_type": "zero2" if layout.sharding else "ddp",
        "vtp": layout.stages[0].tp_degree,
        "vsp": 0,
        "embed_sdp": 0,
        **dict(zip(_OURS, ours, strict=True)),
    }
    return json.dumps(content, indent=4) + "\n"


def read(text: str) -> Layout:
    """The layout of such a file; `ValueError` for another text."""
    try:
        content = json.loads(text)
        lengths, tp, flags = (_numbers(content[name]) for name in ("pp_division", "tp_sizes_enc", "checkpoint"))
        devices, rest = divmod(int(content["world_size"]), int(content["pp_deg"]))
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(f"the file has no {error}; expected Galvatron's keys and world_size") from None
    if rest or len(lengths) != content["pp_deg"] or not sum(lengths) == len(tp) == len(flags) or 0 in lengths:
        raise ValueError("pp_deg, pp_division, tp_sizes_enc, checkpoint and world_size do not fit together")
    layers = iter([Layer(DECODER, recompute=bool(flag)) for flag in flags])
    rows = between_ends([[next(layers) for _ in range(length)] for length in lengths])
    first = [tp[start] for start in accumulate(lengths[:-1], initial=0)]
    return Layout(tuple(Stage(row, devices // t, t) for row, t in zip(rows, first, strict=True)))


def _join(values: list[int]) -> str:
    return ",".join(map(str, values))


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]

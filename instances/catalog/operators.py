"""Catalog entries of operator partitioning: models as operator graphs, from their architecture."""

from collections.abc import Callable
from functools import partial
from typing import Any

from instances.catalog.entry import Entry
from instances.generators.operator_graphs import DEVICES, resnet, semantic_fpn
from instances.generators.operator_sequences import bert, gnmt, swin
from instances.parameters import Setting, choice, count_between, parse_count
from instances.problems.operator_partitioning import OperatorInstance

#: Swin-L is published; of Swin-U only the name is, so its sizes are reconstructed.
_RESNETS = {"resnet50": (3, 4, 6, 3), "resnet152": (3, 8, 36, 3)}
_SWINS: dict[str, tuple[int, tuple[int, ...]]] = {"swin-l": (192, (2, 2, 18, 2)), "swin-u": (384, (2, 2, 42, 2))}

_SHIFTED = "a shifted-window transformer, operator by operator"
_COSTS = "times analytic (instances/generators/operator_graphs.py)"


def _image(value: Any) -> int:
    if parse_count(value) % 32 or parse_count(value) > 4096:
        raise ValueError("a multiple of 32 up to 4096")
    return parse_count(value)


_ACCELERATOR = choice("accelerator", DEVICES, "accelerator that the times are for", "v100")


def _batch(size: int) -> Setting:
    return Setting("microbatch-size", count_between(1, 4096), "samples of a micro-batch", str(size), metavar="B")


def _image_size(size: int) -> Setting:
    return Setting("image-size", _image, "height of an image", str(size), metavar="PIXELS")


def _entry(name: str, build: Callable[..., OperatorInstance], help: str, source: str, *parameters: Setting) -> Entry:
    def make(**given: Any) -> OperatorInstance:
        if "accelerator" in given:
            given["device"] = given.pop("accelerator")
        return build(name, **given)

    return Entry(name, "operator_partitioning", make, help, f"{source}; {_COSTS}", (*parameters, _ACCELERATOR))


_LAYERS = count_between(1, 512)

ENTRIES: tuple[Entry, ...] = (
    *(
        _entry(
            name,
            partial(resnet, blocks=blocks),
            "an image classifier, operator by operator",
            "He et al., Table 1",
            _batch(16),
            _image_size(224),
        )
        for name, blocks in _RESNETS.items()
    ),
    _entry(
        "bert-l",
        bert,
        "BERT-large with its pre-training heads, operator by operator",
        "Devlin et al., section 3",
        Setting("layers", _LAYERS, "transformer layers", "24", metavar="L"),
        Setting("sequence-length", count_between(1, 16384), "tokens of a sequence", "512", metavar="S"),
        _batch(8),
    ),
    *(
        _entry(name, partial(swin, width=width, depths=depths), _SHIFTED, "Liu et al., section 3", _batch(16))
        for name, (width, depths) in _SWINS.items()
    ),
    _entry(
        "semantic-fpn",
        semantic_fpn,
        "semantic segmentation on a feature pyramid, operator by operator",
        "Kirillov et al., Panoptic Feature Pyramid Networks",
        _batch(2),
        _image_size(512),
    ),
    _entry(
        "gnmt",
        gnmt,
        "translation with stacked LSTMs, a sequence to an operator",
        "Wu et al., section 3",
        Setting("layers", count_between(2, 512), "LSTM layers of the encoder, and of the decoder", "8", metavar="L"),
        Setting("sequence-length", count_between(1, 16384), "tokens of a sequence", "50", metavar="S"),
        _batch(64),
    ),
)

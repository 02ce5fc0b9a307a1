"""Models of transformers from a configuration: on the device ``meta``, without weights and without a network."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instances.errors import expect
from instances.files import read_text
from planner.files.read import parse_json
from planner.process.errors import UsageError
from planner.process.target import words
from planner.training.capture.catalogue import CATALOGUE
from planner.training.capture.models import Example, quiet

#: The longest sequence where none is given, and that of models without a largest one.
LONGEST, UNBOUNDED = 4096, 512
_DTYPES = {"bf16": "bfloat16", "fp8": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
#: Layers and heads, widths and words, by the names that transformers has for them: integers from 1 to so many.
_LAYERS = ("n_layer", "n_layers", "num_layers", "num_hidden_layers", "encoder_layers", "decoder_layers")
_HEADS = ("n_head", "n_heads", "num_heads", "num_attention_heads", "num_key_value_heads")
_WIDTHS = ("n_embd", "d_model", "d_ff", "hidden_size", "hidden_sizes", "intermediate_size", "head_dim", "vocab_size")
_MOST = {**dict.fromkeys((*_LAYERS, *_HEADS), 10_000), **dict.fromkeys(_WIDTHS, 10**9)}
#: Where the class of a model type is looked for, if the configuration names none.
_MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


def configuration(name: str) -> dict[str, Any]:
    """What a name of the catalogue, a JSON file, or the ``config.json`` of a folder says.

    `UsageError` if there is no such name or file; nothing is looked for on a network.
    `InstanceError` if the file holds no JSON object with a ``model_type``, or a number of layers, heads or such that is
    none.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise UsageError.unknown("MODEL", name, [*CATALOGUE])
    content = parse_json(read_text(path), str(path))
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise UsageError(f"{path}: model_type is missing; expected the configuration of a model of transformers")
    _expect_counts(content, str(path))
    return content


def _expect_counts(content: Mapping[str, Any], where: str) -> None:
    """`InstanceError` for a number of layers, heads and such, or one in a list of them, that is none; null may stay."""
    for field, value in content.items():
        if isinstance(value, Mapping):
            _expect_counts(value, f"{where}: {field}")
        elif field in _MOST:
            counts = [each for each in value if not isinstance(each, list)] if isinstance(value, list) else [value]
            right = all(each is None or (type(each) is int and 1 <= each <= _MOST[field]) for each in counts)
            expect(right, where, field, value, f"an integer from 1 to {_MOST[field]}")


def example(name: str, *, sequence: int | None, microbatch: int, dtype: str) -> tuple[Example, int]:
    """A model in training mode with the inputs of one micro-batch, and the length of its sequences (0: it has none).

    `UsageError` if transformers does not know the model type, cannot make it, or has fewer positions than ``sequence``.
    """
    import torch
    import transformers

    given = configuration(name)
    label = Path(name).stem if name not in CATALOGUE else name
    settings = {key: value for key, value in given.items() if key not in ("model_type", "architectures", "dtype")}
    try:
        with quiet(), torch.device("meta"):
            config = transformers.AutoConfig.for_model(given["model_type"], **{"use_cache": False, **settings})
            kind = _kind(transformers, given)
            model = kind(config).to(getattr(torch, _DTYPES[dtype])).train()
            length = _length(config, sequence, name)
            inputs = _inputs(model, config, microbatch, length)
    except UsageError:
        raise
    except Exception as error:  # whatever transformers raises for a configuration
        raise UsageError(
            f"{name}: configuration is {words(error)!r}; expected one that transformers makes a model of"
        ) from error
    return Example(label, model, (), inputs), length


def _kind(transformers: Any, given: Mapping[str, Any]) -> Any:
    """The class that the configuration names, or that of its model type."""
    named = given.get("architectures") or []
    if named:
        return getattr(transformers, named[0])
    from transformers.models.auto import modeling_auto

    for mapping in _MAPPINGS:
        found = getattr(modeling_auto, mapping).get(given["model_type"])
        if found is not None:
            return getattr(transformers, found if isinstance(found, str) else found[0])
    raise ValueError(f"no model of type {given['model_type']}")


def _length(config: Any, wanted: int | None, name: str) -> int:
    """Tokens of a sequence: as asked, else as many as the model has positions for, up to `LONGEST`."""
    text = getattr(config, "text_config", None) or config
    if getattr(text, "vocab_size", None) is None:
        if wanted is not None:
            raise UsageError.at("--seq-len", wanted, f"nothing: {name} takes no tokens")
        return 0
    most = next(
        (
            found
            for key in ("max_position_embeddings", "n_positions", "max_target_positions")
            if isinstance(found := getattr(text, key, None), int)
        ),
        None,
    )
    rotary = getattr(text, "rope_parameters", None) or getattr(text, "rope_theta", None)
    if wanted is not None and most is not None and wanted > most and not rotary:
        raise UsageError.at("--seq-len", wanted, f"at most {most}, the positions of {name}")
    return wanted or (UNBOUNDED if most is None else min(most, LONGEST))


def _inputs(model: Any, config: Any, microbatch: int, length: int) -> dict[str, Any]:
    """One tensor for each kind of input that the model takes."""
    import torch

    takes = inspect.signature(model.forward).parameters
    main = model.main_input_name
    dtype = next(model.parameters()).dtype
    found = {}
    if "input_ids" in takes and length and main in ("input_ids", "pixel_values"):
        found["input_ids"] = torch.ones(microbatch, length, dtype=torch.long)
    if "input_features" in takes:
        frames = 2 * config.max_source_positions
        found["input_features"] = torch.ones(microbatch, config.num_mel_bins, frames, dtype=dtype)
    if "pixel_values" in takes and (main == "pixel_values" or hasattr(config, "vision_config")):
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        found["pixel_values"] = torch.ones(microbatch, vision.num_channels, height, width, dtype=dtype)
    if getattr(config, "is_encoder_decoder", False):
        found["decoder_input_ids"] = torch.ones(microbatch, length, dtype=torch.long)
    return found

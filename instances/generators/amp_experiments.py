"""The three experiments of AMP: four nodes of four GPUs, GPT-2 or TransGAN, with published or analytic layer times.

Source: AMP's supplement, section 6.5; bandwidths, volumes and parameters are reconstructed from published predictions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from instances.problems.layer_assignment import TiedParameters
from instances.rules import Amount, Count, Index, one_of

EXPERIMENTS = ("homogeneous", "het_cluster", "het_model")

#: The published files: layer times, and logged runs.
PROFILES_FILE, RUNS_FILE = "layer_forward_times.json", "released_predictions.jsonl"

#: Forward seconds of each layer by "model/gpu/tmp<degree>".
Profiles = Mapping[str, Sequence[float]]

_DEGREES = (1, 2, 4)
_FLOAT_BYTES = 4
_HIDDEN = _SEQUENCE = 1024
_VOCABULARY = 52256
_BOTTOM_WIDTH = 9
#: TransGAN's layers that do something, of 56; cuts elsewhere are the same as cuts between these.
TRANSGAN_LAYERS = (0, *range(3, 15), *range(41, 53))
_TRANSGAN_END = 56
#: For analytic profiles: sustained forward speed (V100 and T4 in single precision, 0.8 of their peak), seconds that a
#: transformer layer takes however small it is, bandwidth of a tensor-parallel all-reduce, and tokens of a window of
#: attention in TransGAN's large layers.
_FLOPS_PER_S = {"P3": 12.5e12, "G4": 6.5e12}
_LAUNCH_S = 1.5e-3
_ALL_REDUCE_BYTES_PER_S = 10e9
_WINDOW = 256


#: The nodes' kinds of GPU, and the model, of each experiment.
_CLUSTERS = {"homogeneous": ["G4"] * 4, "het_cluster": ["P3"] * 3 + ["G4"], "het_model": ["P3"] * 4}
_MODELS = {"homogeneous": "gpt2", "het_cluster": "gpt2", "het_model": "transgan"}
_PROFILED_LAYERS = {"gpt2": 30, "transgan": _TRANSGAN_END}


@dataclass(frozen=True)
class Prediction:
    """A strategy as the authors logged it: what was predicted, and measured where it was run.

    ``partition``: layers in front of each stage and all of them, as in `printed_cuts`.
    """

    experiment: Annotated[str, one_of(*EXPERIMENTS)]
    microbatch: Count
    tp_degree: Count
    dp_degree: Count
    pp_degree: Count
    partition: tuple[Index, ...]
    predicted_s: Amount
    measured_s: Amount | None = None


def profile_lengths(name: str) -> dict[str, int]:
    """The profiles that an experiment needs, and how many layers each has."""
    kinds, model = sorted(set(_CLUSTERS[name])), _MODELS[name]
    return {f"{model}/{kind}/tmp{degree}": _PROFILED_LAYERS[model] for kind in kinds for degree in _DEGREES}


def experiment(name: str, profiles: Profiles) -> AmpInstance:
    """One of `EXPERIMENTS`, with these layer times.

    `KeyError` if a profile is missing.
    """
    kinds = _CLUSTERS[name]
    nodes = tuple(_node(kind, alone=name == "homogeneous") for kind in kinds)
    if name == "het_model":
        return AmpInstance(name, nodes, 4, _transgan(profiles), 64, head_layers=1, released_framing=(0, 1))
    tied = (TiedParameters((0, 28), float(_HIDDEN * _VOCABULARY)),)
    layers = _gpt2(profiles, sorted(set(kinds)))
    return AmpInstance(name, nodes, 4, layers, 32, tied, head_layers=2, tail_layers=4)


def printed_cuts(name: str, lengths: Sequence[int]) -> list[int]:
    """Cuts as the paper and its logs print them: layers in front of each stage of all the layers there are."""
    ends = [sum(lengths[:stage]) for stage in range(len(lengths) + 1)]
    if name != "het_model":
        return ends
    return [0, *(TRANSGAN_LAYERS[end - 1] + 1 for end in ends[1:-1]), _TRANSGAN_END]


def lengths_between(name: str, cuts: Sequence[int]) -> list[int]:
    """Layers of each stage between printed cuts; cuts on either side of layers that do nothing are the same."""
    if name != "het_model":
        ends = list(cuts)
    else:
        ends = [sum(layer < cut for layer in TRANSGAN_LAYERS) for cut in cuts]
    return [end - start for start, end in pairwise(ends)]


def analytic_profiles() -> dict[str, list[float]]:
    """Layer times from counted operations: 24 s h^2 + 4 s^2 h for a transformer layer, the rest little."""
    found = {}
    for kind, speed in _FLOPS_PER_S.items():
        for degree in _DEGREES:
            block = _block_s(_SEQUENCE, _HIDDEN, _SEQUENCE, speed, degree)
            logits = 2 * _SEQUENCE * _HIDDEN * _VOCABULARY / speed / degree
            found[f"gpt2/{kind}/tmp{degree}"] = [4e-4, 1e-4, *[block] * 24, 1e-4, 1e-4, logits, 9e-4]
            small, large = _BOTTOM_WIDTH**2, (_BOTTOM_WIDTH * 32) ** 2
            first = _block_s(small, _HIDDEN, small, speed, degree)
            last = _block_s(large, _HIDDEN // 64, _WINDOW, speed, degree)
            transgan = [1e-4] * _TRANSGAN_END
            for number in TRANSGAN_LAYERS[1:]:
                transgan[number] = first if number < 15 else last
            found[f"transgan/{kind}/tmp{degree}"] = transgan
    return found


def _block_s(tokens: int, width: int, window: int, flops_per_s: float, degree: int) -> float:
    """Forward seconds of a transformer layer; with tensor parallelism, of its two all-reduces too."""
    operations = 24.0 * tokens * width**2 + 4.0 * tokens * window * width
    volume = _FLOAT_BYTES * tokens * width
    sending = 2 * 2 * (degree - 1) / degree * volume / _ALL_REDUCE_BYTES_PER_S
    return _LAUNCH_S + operations / flops_per_s / degree + sending


def _node(kind: str, alone: bool) -> Node:
    """A G4 node sends 50 Gbit/s everywhere; a P3 node 170 inside and 10 to others."""
    intra, inter = (50, 50) if alone or kind == "G4" else (170, 10)
    return Node(kind, intra * 1e9 / 8, inter * 1e9 / 8)


def _times(profiles: Profiles, model: str, kinds: Sequence[str], number: int) -> dict[str, dict[int, float]]:
    return {kind: {degree: profiles[f"{model}/{kind}/tmp{degree}"][number] for degree in _DEGREES} for kind in kinds}


def _gpt2(profiles: Profiles, kinds: Sequence[str]) -> tuple[ModelLayer, ...]:
    """Embedding, a layer that does nothing, 24 transformers, two such layers, logits, and another such layer."""
    hidden, logits = float(_FLOAT_BYTES * _SEQUENCE * _HIDDEN), float(_FLOAT_BYTES * _SEQUENCE * _VOCABULARY)
    block = 12.0 * _HIDDEN**2
    return tuple(
        ModelLayer(
            _times(profiles, "gpt2", kinds, number),
            logits if number >= 28 else hidden,
            block if 2 <= number < 26 else 0.0,
            split_activation=number >= 28,
        )
        for number in range(30)
    )


def _transgan(profiles: Profiles) -> tuple[ModelLayer, ...]:
    """The first layer and 12 transformers, then 12 of a 64th of the width."""
    volume = float(_FLOAT_BYTES * _HIDDEN * _BOTTOM_WIDTH**2)
    widths = {number: _HIDDEN if number < 15 else _HIDDEN // 64 for number in TRANSGAN_LAYERS[1:]}
    return tuple(
        ModelLayer(_times(profiles, "transgan", ["P3"], number), volume, 12.0 * widths.get(number, 0) ** 2)
        for number in TRANSGAN_LAYERS
    )

"""Instances of stage partitioning with other times and another bandwidth than declared; memory stays as it is."""

from collections.abc import Callable
from dataclasses import replace

from formulations.contract.what_if import Factor
from instances.problems.stage_partitioning import Layer, StageInstance


def factors(instance: StageInstance) -> list[Factor[StageInstance]]:
    """Bandwidth, and the time of every layer (of all its TMPCs)."""
    bandwidth = Factor("bandwidth", "bandwidth", lambda times: replace(instance, bandwidth=instance.bandwidth * times))
    return [bandwidth, *(_time(instance, position) for position in range(len(instance.layers)))]


def _time(instance: StageInstance, position: int) -> Factor[StageInstance]:
    layer = instance.layers[position]

    def steeper(slope: float) -> Callable[[float], StageInstance] | None:
        """The line of a plan rises by the time of the layer's TMPC over the stage's data-parallel degree."""
        kept = {t: tuple(x for x in found if x.time > slope) for t, found in layer.tmpcs.items()}
        if not any(kept.values()):
            return None
        return _scale_layer(instance, position, replace(layer, tmpcs={t: found for t, found in kept.items() if found}))

    text = f"time of layer {layer.id}"
    return Factor(text, text, _scale_layer(instance, position, layer), steeper)


def _scale_layer(instance: StageInstance, position: int, layer: Layer) -> Callable[[float], StageInstance]:
    """The instance with a layer in the place of another, by the factor of its times."""

    def scale(factor: float) -> StageInstance:
        layers = list(instance.layers)
        layers[position] = _scale_times(layer, lambda: factor)
        return replace(instance, layers=tuple(layers))

    return scale


def _scale_times(layer: Layer, factor: Callable[[], float]) -> Layer:
    tmpcs = {t: tuple(replace(x, time=x.time * factor()) for x in found) for t, found in layer.tmpcs.items()}
    return replace(layer, tmpcs=tmpcs)


def noisy(instance: StageInstance, draw: Callable[[], float]) -> StageInstance:
    """A factor on the bandwidth, and one on the time of every TMPC."""
    bandwidth = instance.bandwidth * draw()
    return replace(instance, bandwidth=bandwidth, layers=tuple(_scale_times(layer, draw) for layer in instance.layers))

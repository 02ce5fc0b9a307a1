"""What training holds of the weights, by named rules: for inputs that say how large the weights are and no more."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Bookkeeping:
    """Bytes held per parameter.

    PipeDream-2BW keeps ``weight_versions`` of the weights. With ``stashed`` weights (PipeDream) there is a version for
    each micro-batch in flight instead, which counts with the activations.
    """

    parameter_bytes: float = 2.0
    gradient_bytes: float = 2.0
    optimizer_bytes: float = 12.0
    weight_versions: int = 2
    stashed: bool = False

    def state_bytes(self) -> float:
        """Bytes per parameter that do not depend on the micro-batches in flight."""
        versions = 0 if self.stashed else self.weight_versions
        return versions * self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    def stash_bytes(self) -> float:
        """Bytes per parameter for each micro-batch in flight."""
        return self.parameter_bytes if self.stashed else 0.0

    def of_weights(self, weight_bytes: float) -> tuple[float, float]:
        """What weights of that size hold: whatever is in flight, and for each micro-batch in flight."""
        copies = weight_bytes / self.parameter_bytes
        return self.state_bytes() * copies, self.stash_bytes() * copies


#: fp16 weights and gradients; Adam's fp32 weights and two moments.
MIXED_PRECISION = Bookkeeping()
#: What Piper's released BERT profile counts: one byte per parameter in two versions, no gradients, no optimiser state.
PUBLISHED = Bookkeeping(1.0, 0.0, 0.0)

#: The rules that a caller may declare (``--memory-scheme``): the weights alone (inference); Adam in their precision; in
#: mixed precision one version of the weights, two, or one for each micro-batch in flight.
SCHEMES: Mapping[str, Bookkeeping] = {
    "weights": Bookkeeping(4.0, 0.0, 0.0, weight_versions=1),
    "adam": Bookkeeping(4.0, 4.0, 8.0, weight_versions=1),
    "mixed": replace(MIXED_PRECISION, weight_versions=1),
    "2bw": MIXED_PRECISION,
    "pipedream": replace(MIXED_PRECISION, stashed=True),
}
#: What trainers hold of 16-bit weights. Megatron's main gradients have 32 bits (docs of its distributed optimizer: 18
#: bytes a parameter, 6 + 12/d shared). torchtitan's FSDP holds 32-bit weights, of which 2 bytes count with the states
#: here, and reduces in 32 bits: 16/F, and 2 + 4 besides in a pipeline, whose stages stay gathered (0.3.0:
#: config/configs.py, distributed/fsdp.py). DeepSpeed keeps gradients in the weights' type, which
#: the export's CONFIG says (``get_data_types`` of runtime/engine.py; before 0.19.8 not without ZeRO by itself).
BY_TRAINER: Mapping[str, Bookkeeping] = {
    "megatron": Bookkeeping(2.0, 4.0, 12.0, weight_versions=1),
    "torchtitan": Bookkeeping(2.0, 4.0, 10.0, weight_versions=1),
    "deepspeed": SCHEMES["mixed"],
}
#: The option and, among the options of an instance, the record of which rule it was.
SCHEME = "memory-scheme"


def missing_rule(weight_bytes: float) -> str:
    """What is expected where neither a size nor a rule says what is held of weights."""
    rule = f"--{SCHEME} {'|'.join(SCHEMES)}"
    return f"a size, or {rule}, which says what a training step stores for weight_bytes {weight_bytes:g}"

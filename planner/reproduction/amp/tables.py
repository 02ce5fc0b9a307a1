"""What AMP's Tables 6 to 11 print: micro-batch, cuts, tensor- and pipeline-parallel degree, measured seconds."""

from typing import NamedTuple


class Printed(NamedTuple):
    """A row of a table; ``method`` is who proposed it."""

    table: int
    method: str
    microbatch: int
    cuts: tuple[int, ...]
    tp_degree: int
    pp_degree: int
    seconds: str


_EIGHT = (0, 6, 9, 12, 15, 18, 21, 24, 30)
_SIXTEEN = (0, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 20, 21, 22, 23, 25, 30)
_SIXTEEN_MIXED = (0, 3, 5, 7, 9, 11, 13, 15, 16, 17, 19, 20, 21, 22, 23, 25, 30)
_SIXTEEN_GAN = (0, 5, 8, 11, 14, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 56)

#: Rows by experiment.
PRINTED: dict[str, tuple[Printed, ...]] = {
    "homogeneous": (
        Printed(6, "megatron", 1, (0, 30), 1, 1, "1.32"),
        Printed(6, "megatron", 2, (0, 14, 30), 1, 2, "1.37"),
        Printed(6, "megatron", 2, (0, 30), 2, 1, "1.58"),
        Printed(6, "megatron", 4, (0, 14, 30), 1, 2, "1.63"),
        Printed(6, "megatron", 4, (0, 30), 2, 1, "1.53"),
        Printed(7, "amp-released", 1, (0, 15, 30), 1, 2, "1.28"),
        Printed(7, "amp-released", 1, (0, 9, 15, 21, 30), 1, 4, "1.20"),
        Printed(7, "amp-released", 1, _EIGHT, 1, 8, "1.23"),
        Printed(7, "amp-released", 2, (0, 15, 30), 1, 2, "1.38"),
        Printed(7, "amp-released", 1, _SIXTEEN, 1, 16, "1.55"),
    ),
    "het_cluster": (
        Printed(8, "megatron", 2, (0, 14, 30), 1, 2, "2.27"),
        Printed(8, "megatron", 4, (0, 14, 30), 1, 2, "2.32"),
        Printed(8, "megatron", 8, (0, 8, 14, 20, 30), 1, 4, "1.97"),
        Printed(8, "megatron", 8, (0, 14, 30), 2, 2, "2.43"),
        Printed(8, "megatron", 16, (0, 8, 14, 20, 30), 2, 4, "2.34"),
        Printed(9, "amp-released", 1, (0, 7, 14, 20, 30), 1, 4, "1.47"),
        Printed(9, "amp-released", 1, (0, 5, 9, 12, 15, 18, 21, 24, 30), 1, 8, "1.28"),
        Printed(9, "amp-released", 1, _SIXTEEN_MIXED, 1, 16, "1.52"),
        Printed(9, "amp-released", 2, (0, 8, 14, 20, 30), 1, 4, "1.52"),
        Printed(9, "amp-released", 2, (0, 5, 9, 12, 14, 17, 20, 23, 30), 1, 8, "1.54"),
    ),
    "het_model": (
        Printed(10, "megatron", 1, (0, 41, 56), 1, 1, "1.89"),
        Printed(10, "megatron", 2, (0, 9, 41, 47, 56), 1, 2, "1.99"),
        Printed(11, "amp-released", 1, (0, 12, 44, 48, 56), 1, 4, "1.07"),
        Printed(11, "amp-released", 2, (0, 12, 44, 48, 56), 1, 4, "1.08"),
        Printed(11, "amp-released", 2, _SIXTEEN_GAN, 1, 16, "1.13"),
        Printed(11, "amp-released", 1, _SIXTEEN_GAN, 1, 16, "1.30"),
        Printed(11, "amp-released", 2, (0, 7, 12, 42, 44, 47, 49, 51, 56), 1, 8, "1.39"),
    ),
}

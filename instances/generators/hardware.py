"""Accelerators in numbers of their makers: peak rates, memory and links of one device in its usual server.

Source: data sheets of the makers, named for each device; rates are dense (no sparsity), links count one direction.
"""

from collections.abc import Mapping
from dataclasses import dataclass

#: Bytes of an element, by the names that data types have here: fp8 is bf16 but for products with weights of layers.
DTYPES = {"bf16": 2, "fp8": 2, "fp16": 2, "fp32": 4, "fp64": 8}


@dataclass(frozen=True)
class Hardware:
    """One device of a server.

    ``peak_flop_per_s``: of dense matrix products, by data type.
    ``memory_bytes``, ``memory_bandwidth_bytes_per_s``: of the device.
    ``inner_bandwidth_bytes_per_s``: of its links to the other devices of the server, one direction.
    ``outer_bandwidth_bytes_per_s``: of its share of the server's network, one direction: as in the maker's own server,
    or an assumption.
    ``devices_per_machine``: of that server.
    ``source``: where the numbers are from.
    """

    name: str
    peak_flop_per_s: Mapping[str, float]
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    inner_bandwidth_bytes_per_s: float
    outer_bandwidth_bytes_per_s: float
    devices_per_machine: int
    source: str


def _peak(half: float, single: float, double: float | None = None, **others: float) -> dict[str, float]:
    found = {"bf16": half, **others, "fp16": half, "fp32": single} | ({} if double is None else {"fp64": double})
    return {name: rate for name, rate in found.items() if rate}


HARDWARE = {
    each.name: each
    for each in (
        Hardware(
            "v100", _peak(125e12, 15.7e12, 7.8e12, bf16=0), 32e9, 0.9e12, 150e9, 6.25e9, 8,
            "NVIDIA V100 data sheet (SXM2, 32 GB); DGX-1 data sheet (four 100 Gbit/s ports for eight devices)",
        ),
        Hardware(
            "a100-80g", _peak(312e12, 19.5e12, 19.5e12), 80e9, 2.039e12, 300e9, 25e9, 8,
            "NVIDIA A100 data sheet (SXM, 80 GB); DGX A100 data sheet (eight 200 Gbit/s ports)",
        ),
        Hardware(
            "h100", _peak(989.4e12, 66.9e12, 66.9e12, fp8=1978.9e12), 80e9, 3.35e12, 450e9, 50e9, 8,
            "NVIDIA H100 data sheet (SXM5); DGX H100 data sheet (eight 400 Gbit/s ports)",
        ),
        Hardware(
            "h200", _peak(989.4e12, 66.9e12, 66.9e12, fp8=1978.9e12), 141e9, 4.8e12, 450e9, 50e9, 8,
            "NVIDIA H200 data sheet (SXM); DGX H200 data sheet (eight 400 Gbit/s ports)",
        ),
        Hardware(
            "b200", _peak(2250e12, 80e12, fp8=4500e12), 180e9, 8e12, 900e9, 50e9, 8,
            "NVIDIA DGX B200 data sheet (1,440 GB and 64 TB/s for eight devices; eight 400 Gbit/s ports)",
        ),
        Hardware(
            "mi300x", _peak(1307.4e12, 163.4e12, 163.4e12, fp8=2614.9e12), 192e9, 5.3e12, 448e9, 50e9, 8,
            "AMD Instinct MI300X data sheet (seven links of 128 GB/s in both directions); 400 Gbit/s is an assumption",
        ),
        Hardware(
            "l40s", _peak(362.05e12, 91.6e12, fp8=733e12), 48e9, 0.864e12, 32e9, 25e9, 8,
            "NVIDIA L40S data sheet (PCIe 4.0 x16); eight devices and 200 Gbit/s each are assumptions",
        ),
    )
}  # fmt: skip

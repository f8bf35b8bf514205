"""The least time that a device needs for some FLOPs and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from .cost import Traffic


@dataclass(frozen=True, slots=True)
class Device:
    """Ceilings of a GPU: dense FLOP/s with fp32 accumulation by element size, and HBM bytes/s."""

    name: str
    flops_16_bit: float
    flops_32_bit: float
    bytes_per_second: float
    capability: int  # 80, 89, 90, ...
    multiprocessors: int
    source: str

    def flops(self, element_bytes: int) -> float:
        """Where there are kernels of 8 bits, their products are twice as fast as those of 16."""
        return {1: 2 * self.flops_16_bit, 2: self.flops_16_bit}.get(element_bytes, self.flops_32_bit)


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device("a100", 312e12, 19.5e12, 2.039e12, 80, 108, "NVIDIA A100 80GB SXM datasheet"),
        Device("h100", 989.4e12, 66.9e12, 3.35e12, 90, 132, "NVIDIA H100 SXM datasheet"),
        Device("h200", 790e12, 66.9e12, 4.8e12, 90, 132, "bf16: 8192^3 matmul, measured at 700 W; else datasheet"),
        Device("b200", 2250e12, 80e12, 8e12, 100, 148, "NVIDIA Blackwell architecture brief, HGX B200"),
        Device("l40s", 362e12, 91.6e12, 864e9, 89, 142, "NVIDIA L40S datasheet, without sparsity"),
        Device("rtx4090", 165.2e12, 82.6e12, 1.008e12, 89, 128, "NVIDIA Ada architecture whitepaper"),
        Device("rtx5090", 209.5e12, 104.8e12, 1.792e12, 120, 170, "NVIDIA RTX Blackwell architecture whitepaper"),
    )
}


@dataclass(frozen=True, slots=True)
class Roofline:
    """The least time that a device needs, and why. `intensity` and `ridge` are FLOP per byte of HBM traffic."""

    compute_seconds: float
    memory_seconds: float
    intensity: float
    ridge: float

    @property
    def seconds(self) -> float:
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def bound_by(self) -> str:
        return "compute" if self.compute_seconds >= self.memory_seconds else "memory"


def roofline(flops: int, traffic: Traffic, device: Device, element_bytes: int = 2) -> Roofline:
    """Williams et al., "Roofline" (CACM 2009): time is at least FLOPs over peak, and at least bytes over bandwidth."""
    peak = device.flops(element_bytes)
    return Roofline(
        compute_seconds=flops / peak,
        memory_seconds=traffic.total / device.bytes_per_second,
        intensity=flops / max(traffic.total, 1),
        ridge=peak / device.bytes_per_second,
    )

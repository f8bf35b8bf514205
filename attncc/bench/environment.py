"""Where something was timed: what a number means nothing without."""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ..version import installed

_PACKAGES = (
    "attncc", "torch", "triton", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc", "flash-attn-4", "numpy",
    "transformers", "jax",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Device, driver, versions, and the command line."""
    properties = torch.cuda.get_device_properties()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "driver": output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "power_limit": output("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader"),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "packages": {name: installed(name) for name in _PACKAGES},
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def output(*command: str, folder: Path | None = None) -> str | None:
    """The first line that a command prints; None where it isn't there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""

"""The families of kernels: for each folder of `kernels/` the value of the knob `family`, the fastest first.

This is where a family is registered. `kernels.registry` loads it when a plan of it is asked for.
"""

from __future__ import annotations

FAMILIES = {
    "hopper_forward": "hopper",
    "hopper_backward": "hopper",
    "hopper_decode": "hopper",
    "hopper_wide": "hopper_wide",
    "wide_forward": "wide",
    "portable_forward": "portable",
    "decode": "portable",
    "portable_backward": "portable",
}

# The values of the knob, the most general first.
KINDS = tuple(dict.fromkeys(reversed(FAMILIES.values())))

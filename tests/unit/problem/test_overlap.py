"""Where arrays of a call lie, told without the libraries that their frameworks don't need."""

from __future__ import annotations

import subprocess
import sys

ITEM_BYTES = """
import sys
sys.modules["ml_dtypes"] = None
from attncc.problem.facts import INPUT_DTYPES, KERNEL_DTYPES, KV_DTYPES
from attncc.problem.overlap import item_bytes
names = {*INPUT_DTYPES.values(), *KERNEL_DTYPES.values(), *KV_DTYPES.values()}
print(sorted((item_bytes(name), name) for name in names))
"""


def test_sizes_of_elements_need_no_ml_dtypes() -> None:
    """As packages need torch alone on a GPU."""
    done = subprocess.run([sys.executable, "-c", ITEM_BYTES], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == str([
        (1, "bool"), (1, "float8_e4m3fn"), (1, "int8"), (2, "bfloat16"), (2, "float16"), (4, "float32"), (4, "int32"),
        (8, "float64"), (8, "int64"),
    ])  # fmt: skip

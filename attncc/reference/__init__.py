"""The dense reference, straight from the IR: no tiles, no online softmax, fp64."""

from .accuracy import Accuracy, accuracy, accuracy_where_defined
from .backward import backward, baseline_backward
from .dense import baseline, forward, in_kernel_precision
from .mask import mask

__all__ = [
    "Accuracy",
    "accuracy",
    "accuracy_where_defined",
    "backward",
    "baseline",
    "baseline_backward",
    "forward",
    "in_kernel_precision",
    "mask",
]

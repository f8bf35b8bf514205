"""The dense reference, straight from the IR: no tiles, no online softmax, in fp64."""

from .accuracy import Accuracy, accuracy
from .backward import backward, baseline_backward
from .dense import baseline, forward
from .mask import mask

__all__ = ["Accuracy", "accuracy", "backward", "baseline", "baseline_backward", "forward", "mask"]

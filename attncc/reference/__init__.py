"""The dense reference, straight from the IR: no tiles, no online softmax, in fp64."""

from .accuracy import Accuracy, accuracy
from .dense import baseline, forward
from .mask import mask

__all__ = ["Accuracy", "accuracy", "baseline", "forward", "mask"]

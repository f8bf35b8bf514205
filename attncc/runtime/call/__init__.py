"""One call, from checked arguments to launches, forward and backward, on a GPU or the CPU executor."""

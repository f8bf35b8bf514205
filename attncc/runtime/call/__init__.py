"""One call, forward or backward, on a GPU or the CPU executor: from checked arguments to launches."""

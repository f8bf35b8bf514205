"""torch's autograd and torch.compile: calls that are recorded, and the kernel as torch operators."""

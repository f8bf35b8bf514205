"""Int and bool expressions in normal form: affine sums, static ranges, shared nodes. This folder knows no mask."""

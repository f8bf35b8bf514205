"""Int and bool expressions in normal form: affine sums, static ranges, shared nodes. Knows no mask."""

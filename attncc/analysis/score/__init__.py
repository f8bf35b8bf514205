"""Score lines: the cheap form for whole tiles, and the symbolic gradient."""

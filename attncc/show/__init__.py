"""Pictures of masks: what is kept, which tiles a kernel skips, how much work each row is.

Read `drawing` (the numbers), `text`, `svg` and `plot` (matplotlib) that draw them, `picture` (what shows itself in
terminals and notebooks), `variants` (the picture of a variant, and what notebooks show of it).
"""

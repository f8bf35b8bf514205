"""`attncc bench`: a variant beside what its user would run instead, on this GPU.

In this order: `case` (sizes, random arrays), `flex_text` (the variant as FlexAttention's functions), `form` (whether
its mask is causal or a window), `oracle` (fp64), `peers` and `flex` (what it is compared with), `stopwatch`,
`measure` (checks, then times), `table` and `plot`. Everything except `flex_text`, `table` and `plot` needs torch.
"""

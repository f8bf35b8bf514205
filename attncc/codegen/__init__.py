"""Plans to CUDA: `render` fills a template, puts leaf files in place, and gives a text that compiles alone.

What a variant means is printed by `user_code`: IR becomes `nodes` (`expressions`, on `integers`, `floats`, `loads`),
and these `functions` and `structs`; `tile_code`, `key_bits`, `form_code` and `gradients` are what it prints of the
analyses.
"""

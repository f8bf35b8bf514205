"""Plans to CUDA: `render` fills a template, inserts leaf files, and returns a text that compiles alone.

`user_code` prints what a variant means. IR becomes `nodes` (by `expressions`, on `integers`, `floats`, `loads`), which
`functions` and `structs` print. `tile_code`, `key_bits`, `form_code` and `gradients` print results of the analyses.
"""

"""What is proven about a variant, and what can be counted: IR in, IR or numbers out. docs/analysis.md argues why.

Read `rules` first: it holds what the analysis of a mask returns. Then the folders:

- `algebra/`: lines in normal form (`canonical`, on `algebra`, `integers`, `terms`, `affine`, `ranges`).
- `mask/`: `tiles` makes the rules, from intervals and truth over a box of pairs, and from loop bounds. `conjunctions`
  and `plain` rewrite masks over rows and columns. `key_sets` says what one row keeps of a tile, `kept_rows` whether
  every row keeps a key. `grid` evaluates rules for a call.
- `tiles_2d/`: whether 2-D tiles leave less to compute.
- `score/`: `score_form` is what is cheap for whole tiles; `gradient`, on `factors` and `derivatives`, is for the
  backward pass.
- `cost/`: FLOPs, bytes, the roofline.
"""

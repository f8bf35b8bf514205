"""What is proven of a variant, and what can be counted: IR in, IR or numbers out. docs/analysis.md has the arguments.

Masks: `tiles` makes the `rules` of a mask, from lines in normal form (`canonical`, on `algebra`, `integers`, `bits`,
`terms`, `affine`, `ranges`), their `intervals` and `truth` over a `box`, `lookups`, loop `bounds` and `sorted_hints`.
`conjunctions` are what lines say together, and `plain` is a mask in the words of rows and columns. `key_sets` are what
one row keeps, and `kept_rows` tells whether each keeps a key; `canvas`, `patches` and `windows` are tiles in two
dimensions; `grid` evaluates rules on a call.
Scores: `score_form`, what is cheap for whole tiles; `gradient`, on `factors` and `derivatives`, for the backward pass.
Counts: `cost` and `roofline`.
"""

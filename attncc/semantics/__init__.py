"""AST to IR. `load` is the way in: it reads files and their masks (`imports`), then lowers each variant (`lower`).

A variant's `statements`, `expressions` and `tensors` come next, with `names`, `types` and `constants`. `report`
collects error messages, and `unknown` explains names that aren't there.
"""

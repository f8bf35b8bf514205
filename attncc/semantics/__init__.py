"""AST to IR: `load` is the way in. Files and their masks (`imports`), then each variant (`lower`): its `statements`,
`expressions` and `tensors`, with `names`, `types` and `constants`; `report` and `unknown` say what is wrong.
"""

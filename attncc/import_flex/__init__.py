"""Migration: FlexAttention's `mask_mod` and `score_mod` functions become a `.attn` file (`attncc import-flex`).

The user's Python is parsed and never run. `machine` reads it as if it ran, by the `rules` for `expressions`,
`statements`, `subscripts` and `calls`; `branches` reads an undecided `if` both ways. `terms` is what a mod computes,
`blocks` and `axes` are tensors with axes inside of a mod. `kinds` and `inputs` guess what captured tensors are, `write`
prints the terms, `importer` puts it all together.
"""

from .importer import Imported, import_flex

__all__ = ["Imported", "import_flex"]

"""`attncc tune`: the fastest schedule of a pass on this GPU.

In this order: `candidates` (which schedules are tried), `model` (what the IO model says of each), `trial` (what became
of one), `compiling`, `race` (the statistics: windows in turns, intervals, who wins), `work` (arrays, and the check
against fp64), `machine` (what is asked of a GPU) and `gpu` (the real one), `log`, `session` (a run, from candidates to
the verdict), `report` and `write` (the file).
"""

"""How a variant runs: `schedule` is what the user wrote, by the `knobs`; a `plan` is one kernel as data.

`kernels` makes plans of schedules, and says what follows from them.
"""

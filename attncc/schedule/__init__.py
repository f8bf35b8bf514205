"""How a variant runs. `schedule` holds what the user wrote, `knobs` what may be set, and `plan` one kernel as data.

The `kernels` folder makes plans from schedules, and says what follows from a plan.
"""

"""How a variant runs: a `schedule.Ladder` of `plan.KernelPlan`s for each pass, target, dtype and head dim.

What the variant asks for (`weight`) says where on the ladder to begin; `choices` fills in what `knobs` leave open from
the tables of `defaults` and `hopper_tiles`; `legality` and `crowding` say which of them can't be. Of a plan:
`hopper_forward` and `hopper_backward` have what the family hopper adds; `parameters` is the launch ABI; `kernel_names`
are the kernels that its launches need; `serving`, which plan runs a call.
"""

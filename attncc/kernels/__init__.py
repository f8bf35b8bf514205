"""The families of kernels, one folder each, and what they share.

A family (`family.Family`) says which tiles its kernels may have, which plans are legal, what follows from a plan
(`facts`: registers, shared memory, parameters, launches), and which `helpers` its launches need. `schedule.families`
registers a family, and `registry` finds it. `candidates` makes the plans of one kernel, the fastest first. `serving`
says which plan runs a call.
"""

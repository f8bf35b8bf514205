"""The families of kernels, each in a folder of its own, and what they share.

A family (`family.Family`) says which tiles its kernels may have, which plans are legal, what follows from one (`facts`:
registers, shared memory, parameters, how it is launched) and which `helpers` its launches need. `schedule.families`
registers it, `registry` finds it. `candidates` makes the plans of one kernel, the fastest first; `serving` says which
plan runs a call.
"""

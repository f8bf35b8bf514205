"""`attncc explain --measure`: what a call moves by the counters of a GPU, beside what the IO model predicts.

In this order: `counters` (which of the GPU's counters are asked, and what they mean), `job` (the call, in a process of
its own), `ncu` (Nsight Compute around that process), `compare` (predicted beside measured, and why they differ).
"""

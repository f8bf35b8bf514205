"""Where plans and machine code are found: the cache of compiled kernels, built packages, loaded kernels."""

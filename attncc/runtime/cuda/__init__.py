"""The CUDA driver, NVRTC, devices and timing. This folder knows no framework."""

"""The CUDA driver, NVRTC, devices, tensor maps and timing. Knows no framework."""

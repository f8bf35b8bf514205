"""The arrays that callers bring: NumPy, CuPy, torch, DLPack."""

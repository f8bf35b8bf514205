"""From machine code to results: `kernel.Kernel` is what callers hold.

A call on a GPU: `launch` (backward: `backward`, `backward_launch`) reads the arguments (`operands`, `arrays`) and,
where their form is new, makes its launches (`prepare`, `backward_prepare`, to `steps`); `family` has the kernels
loaded, `driver` the CUDA driver. On the CPU: `host`. Recorded by torch: `autograd`, `torch_operator`. Machine code
comes from a `store`: `package_store` on disk, or the compiler's (`nvrtc`, `cache`).
"""

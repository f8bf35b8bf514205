"""From machine code to results: `kernel.Kernel` is what callers hold.

- `call/`: a call on a GPU. `launch` (backward: `backward`, `backward_launch`) reads the arguments (`operands`) and,
  where their form is new, makes its launches (`prepare`, `backward_prepare`, to `steps`). On the CPU: `host`.
- `cuda/`: the driver, and `nvrtc`: `nvrtc_pool` keeps its processes, each of which runs `nvrtc_worker`; `cubin` reads
  what they make.
- `frameworks/`: arrays of NumPy, CuPy, torch, and by DLPack any other. `framework` has what is asked of them, `arrays`
  finds who answers.
- `torch/`: calls that torch records or traces (`autograd`, `torch_operator`).
- `store/`: where machine code comes from: a package on disk (`package_store`), or the compiler (`cache`).
  `loaded_kernels` loads it on a GPU.

`kernel` and `package` stay where they are: built packages import them.
"""

"""Kernels that a test needs in another form than `attncc.compile` makes them, or many of them at once.

This module must not import torch: each of the processes that compile imports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from attncc.compiler import CompiledStore, load_specification
from attncc.runtime.cuda.nvrtc_pool import JOBS
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.store import Configuration

MOST_PROCESSES = 32  # containers may show the cores of their host
# For glibc, which reads them when a process begins: a compiler's memory in large pages, which it asks for in large
# pieces and keeps. NVRTC takes a twentieth less time so.
LARGE_PAGES = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_TOP_PAD_": str(128 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
}


def without_decode(text: str, *, dtype: str, head_dim: int, value_head_dim: int, arch: str | None) -> Kernel:
    """A kernel whose forward pass runs calls with few queries as well; arguments as those of `attncc.compile`."""
    specification = load_specification(text, None, {})[0].without_unasked_decode()
    archs = () if arch is None else (arch,)
    store = CompiledStore(specification, Configuration(dtype, head_dim, value_head_dim), archs)
    store.compile_now()
    return Kernel(store)


def processes() -> ProcessPoolExecutor:
    """One for each core, since half of the work before a compilation holds Python's lock. They give way to the tests,
    so that a machine of two cores spends one on tests and the other on kernels, and both on whatever is left."""
    count = min(os.cpu_count() or 1, MOST_PROCESSES)
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=os.nice, initargs=(5,))
    before = dict(os.environ)
    os.environ |= LARGE_PAGES | {JOBS: "1"}  # no candidates are tried ahead: there are as many processes as cores
    for _ in range(count):
        pool.submit(os.getpid)  # each begins a process
    os.environ.clear()
    os.environ |= before
    return pool


def fill_cache(compilations: Iterable[Callable[[], Kernel]]) -> None:
    """Runs them all in processes, so that this one finds what they compile in the cache."""
    with processes() as pool:
        for future in [pool.submit(_discard, item) for item in compilations]:
            future.result()


def _discard(compilation: Callable[[], Kernel]) -> None:
    compilation()

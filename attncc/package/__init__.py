"""`attncc build`: specs become an importable package of CUDA text, machine code, plans and a readable `__init__.py`."""

from .hf_kernel import write_hf_kernel
from .variant_package import VariantPackage, package_files, prepare
from .writer import BuiltVariant, build, write

__all__ = ["BuiltVariant", "VariantPackage", "build", "package_files", "prepare", "write", "write_hf_kernel"]

"""Files that look like machine code."""

from __future__ import annotations

import struct


def image(instructions: int, entry: str = "kernel") -> bytes:
    """An ELF file with that much code of one kernel."""
    names = f"\0.text.{entry}\0".encode()
    header = struct.Struct("<IIQQQQIIQQ")
    code = header.pack(1, 1, 0, 0, 0, 16 * instructions, 0, 0, 0, 0)
    sections = code + header.pack(0, 3, 0, 0, 64, len(names), 0, 0, 0, 0)
    start = b"\x7fELF\x02".ljust(40, b"\0") + struct.pack("<Q", 64 + len(names)) + bytes(10)
    return start + struct.pack("<HHH", header.size, 2, 1) + names + sections

"""Two folders change places in one step, where the system can do that."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

_AT_FDCWD = -100  # Linux: paths are relative to the working folder
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux's renameat2, RENAME_SWAP of macOS' renamex_np
_NOT_HERE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


def exchange(one: Path, other: Path) -> bool:
    """Each path names from now on what the other did. False if this system or its file system (NFS, for one) can't;
    OSError for what goes wrong where it can."""
    rename = _library()
    if rename is None:
        return False
    first, second = os.fsencode(one), os.fsencode(other)
    arguments = (first, second, _EXCHANGE) if sys.platform == "darwin" else (_AT_FDCWD, first, _AT_FDCWD, second, 2)
    if rename(*arguments) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_HERE:
        return False
    raise OSError(number, os.strerror(number), str(one))


@cache
def _library() -> Any:
    """The C library's function; None on Windows, and where the library is older than it."""
    if os.name != "posix":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return getattr(library, "renamex_np" if sys.platform == "darwin" else "renameat2", None)

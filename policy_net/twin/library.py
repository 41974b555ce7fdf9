"""The compiled library of the twin: its place, whether it may be used, and why not where it may not.

It is built with the package where there is a C compiler (`setup.py`); without it everything works, slower, on the
reference. A library of other sources than those beside it is not used: results would be those of the past.
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import cache
from pathlib import Path

from policy_net.twin.memory import SIZES, CaseMemory, Standing

CORE = Path(__file__).with_name("core")
_PATTERN = "_core*.so"
_REMEDY = "set up again with a C compiler (make setup)"


class TwinUnavailable(Exception):
    """There is no library that may be used; the message is one line that says why, and what to do."""


def source_digest(core: Path = CORE) -> str:
    """SHA-256 over the C sources, hex; what the library is built of carries the same."""
    total = hashlib.sha256()
    for path in sorted([*core.rglob("*.c"), *core.rglob("*.h")]):
        total.update(path.relative_to(core).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


@cache
def library() -> ctypes.CDLL:
    """The library, loaded once.

    Raises:
        TwinUnavailable: it was not built, cannot be loaded, or is of other sources.
    """
    return load(CORE.parent, CORE)


def load(folder: Path, core: Path) -> ctypes.CDLL:
    """Load the library of a folder, built of the sources in another.

    Raises:
        TwinUnavailable: as `library`.
    """
    found = sorted(folder.glob(_PATTERN))
    if not found:
        raise TwinUnavailable(f"the compiled twin was not built, so simulations take longer: {_REMEDY}")
    try:
        loaded = ctypes.CDLL(str(found[0]))
        loaded.twin_sources.restype = ctypes.c_char_p
        built_of = loaded.twin_sources().decode()
        sizes = (ctypes.c_int64 * len(SIZES))()
        loaded.twin_sizes(sizes)
    except (OSError, AttributeError) as error:
        raise TwinUnavailable(
            f"the compiled twin cannot be loaded ({error}), so simulations take longer: {_REMEDY}"
        ) from error
    if tuple(sizes) != SIZES or (core.is_dir() and built_of != source_digest(core)):
        raise TwinUnavailable(f"the compiled twin is of other sources, so simulations take longer: {_REMEDY}")
    loaded.twin_open.restype = ctypes.c_void_p
    loaded.twin_open.argtypes = [ctypes.POINTER(CaseMemory), ctypes.POINTER(Standing)]
    loaded.twin_advance.restype = ctypes.c_int64
    loaded.twin_advance.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    loaded.twin_close.argtypes = [ctypes.c_void_p]
    loaded.twin_close.restype = None
    return loaded


def notice() -> str | None:
    """One line for people where the twin cannot be used; None where it can."""
    try:
        library()
    except TwinUnavailable as unavailable:
        return str(unavailable)
    return None

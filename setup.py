"""Build of the one part of fedl2 that is compiled, the twin; all else is in pyproject.toml.

Where there is no C compiler the package is built without it, and simulations run on the reference, slower.
"""

import hashlib
from pathlib import Path

from setuptools import Extension, setup

CORE = Path("policy_net/twin/core")


def source_digest() -> str:
    """As `policy_net.twin.library.source_digest`, which compares the two: the package cannot be imported here."""
    total = hashlib.sha256()
    for path in sorted([*CORE.rglob("*.c"), *CORE.rglob("*.h")]):
        total.update(path.relative_to(CORE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


setup(
    ext_modules=[
        Extension(
            "policy_net.twin._core",
            sources=sorted(str(path) for path in CORE.rglob("*.c")),
            depends=sorted(str(path) for path in CORE.rglob("*.h")),
            # Contraction would round once where the reference rounds twice.
            extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off"],
            define_macros=[("TWIN_SOURCES", f'"{source_digest()}"')],
            libraries=["m"],
            optional=True,
            py_limited_api=True,
        )
    ],
    # The library is called through ctypes and knows no Python: one wheel serves all versions.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

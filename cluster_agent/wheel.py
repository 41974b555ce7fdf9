"""This installation as a wheel: what a job's own environment installs where no package index has fedl2.

It is pure, so that any interpreter of any architecture takes it: without the compiled twin, which no script needs.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from cluster_agent.errors import BadAgentConfig
from foundation.files import write_whole
from foundation.program_life import OWN_PACKAGES

_TAG = "py3-none-any"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of all that is in it: the same installation makes the same bytes."""
_LEFT_OUT = frozenset({".pyc", ".so"})


def write_wheel(folder: Path) -> Path:
    """Write `fedl2-VERSION-py3-none-any.whl` into a folder, over one that is there.

    Raises:
        BadAgentConfig: nothing can be written there.
    """
    version = importlib.metadata.version("fedl2")
    target = folder / f"fedl2-{version}-{_TAG}.whl"
    try:
        write_whole(target, _wheel(f"fedl2-{version}.dist-info"))
    except OSError as error:
        raise BadAgentConfig(f"{target}: cannot be written ({error.strerror}); name a folder that exists") from error
    return target


def _wheel(about: str) -> bytes:
    record, content = f"{about}/RECORD", io.BytesIO()
    lines = []
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, data: bytes) -> None:
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)

        for name, data in _files(about):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data)
        add(record, "".join([*lines, f"{record},,\n"]).encode())
    return content.getvalue()


def _files(about: str) -> Iterator[tuple[str, bytes]]:
    root = Path(__file__).parents[1]
    for package in OWN_PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and path.suffix not in _LEFT_OUT:
                yield path.relative_to(root).as_posix(), path.read_bytes()
    for name in ("METADATA", "entry_points.txt"):
        yield f"{about}/{name}", (importlib.metadata.distribution("fedl2").read_text(name) or "").encode()
    yield f"{about}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fedl2\nRoot-Is-Purelib: true\nTag: {_TAG}\n".encode()

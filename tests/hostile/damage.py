"""Ways in which a file on disk can be other than it was written."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path


def _flip(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[min(int(len(data) * share), len(data) - 1)] ^= 0x11
    path.write_bytes(bytes(data))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "emptied": lambda path: path.write_bytes(b""),  # type: ignore[dict-item, return-value]
    "cut-in-half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),  # type: ignore[dict-item, return-value]
    "one-byte-short": lambda path: path.write_bytes(path.read_bytes()[:-1]),  # type: ignore[dict-item, return-value]
    "flipped-early": lambda path: _flip(path, 0.02),
    "flipped-in-the-middle": lambda path: _flip(path, 0.5),
    "flipped-late": lambda path: _flip(path, 0.98),
    "random": lambda path: path.write_bytes(random.Random(1).randbytes(3000)),  # type: ignore[dict-item, return-value]
    "text": lambda path: path.write_bytes(b"nothing of ours\n"),  # type: ignore[dict-item, return-value]
    "latin-1": lambda path: path.write_bytes(b"\xff\xfe\xe4\n"),  # type: ignore[dict-item, return-value]
    "deep": lambda path: path.write_bytes(b"[" * 100_000 + b"\n"),  # type: ignore[dict-item, return-value]
    "other-json": lambda path: path.write_bytes(b'{"format": 99, "nothing": [1]}\n'),  # type: ignore[dict-item, return-value]
    "json-list": lambda path: path.write_bytes(b"[1, 2]\n"),  # type: ignore[dict-item, return-value]
    "a-folder": _folder,
    "gone": lambda path: path.unlink(),
}


def files_of(folder: Path) -> list[str]:
    """All files below a folder, by their path in it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def copies(folder: Path, target: Path, names: list[str]) -> Iterator[tuple[str, str, Path]]:
    """A copy of the folder for every file and every damage, one damaged file in each."""
    for name in names:
        for kind, damage in DAMAGE.items():
            copy = target / "copy"
            if copy.exists():
                shutil.rmtree(copy)
            shutil.copytree(folder, copy)
            damage(copy / name)
            yield name, kind, copy

"""Folder of checkpoints in an object store: as much of a path as checkpoints need, at a URL that fsspec knows.

Nothing is renamed there, and nothing has to be: an object is there as a whole or not at all, and the manifest, written
last, makes a checkpoint count as it does in a folder. Errors are the system's own, as of files, so that whoever reads a
checkpoint sees no difference; none of them says that a disk is damaged, as a network that fails damages nothing.
"""

from __future__ import annotations

import errno
import io
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from elastic_runtime.errors import BadInput
from foundation.files import write_whole
from foundation.text import plain_line

CALL_SECONDS = 60.0
"""For a call with its further tries: longer than a store is busy, shorter than people wait without a word."""
LEAST_BYTES_PER_SECOND = 1024**2
"""What is larger has so much more time: slower, a checkpoint would not be done before the next one."""
_READ_AHEAD_BYTES = 8 * 1024**2
"""A request costs as much time as some megabytes do."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 8.0
_LONGEST_LINE = 200
_URL = re.compile(r"([a-z][a-z0-9+.-]{0,30})://([^\s?#]+)")
_FINAL = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, TypeError, ValueError)
"""Errors that another try would meet again."""
_T = TypeVar("_T")


class ObjectStore:
    """A file system of fsspec, whose calls have deadlines; several threads may use it."""

    def __init__(
        self, system: Any, clock: Callable[[], float] = time.monotonic, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._system, self._clock, self._wait = system, clock, wait

    def call(self, url: str, function: Callable[[Any], _T], size_bytes: int = 0) -> _T:
        """Result of a function of the file system, which may be called several times.

        Raises:
            OSError: it failed, or took too long; a call that hangs is left alone.
        """
        deadline = self._clock() + CALL_SECONDS + size_bytes / LEAST_BYTES_PER_SECOND
        pause = _FIRST_PAUSE_SECONDS
        while True:
            answer = _begin(lambda: function(self._system))
            try:
                return answer.result(timeout=max(0.0, deadline - self._clock()))
            except _FINAL as error:
                raise _translated(url, error) from error
            except Exception as error:  # of each store's own kind, and what is late
                if not answer.done() or self._clock() + pause >= deadline:
                    raise _translated(url, error) from error
            self._wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class StorePath:
    """A place in an object store, with those methods of a `Path` that checkpoints need; all raise OSError.

    Attributes:
        url: without the password of anybody.
        key: by which the file system knows it.
    """

    store: ObjectStore
    url: str
    key: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.store, f"{self.url}/{name}", f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    def exists(self) -> bool:
        """Whether there is an object of this name, or below it."""
        try:
            self._info()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there are objects whose names begin with this one."""
        return bool(self._list())

    def iterdir(self) -> Iterator[StorePath]:
        """What is below, one level deep; nothing where there is nothing."""
        keys = {str(each["name"]).strip("/") for each in self._list()} - {self.key.strip("/")}
        return (self / name for name in sorted({key.rpartition("/")[2] for key in keys}))

    def stat(self) -> SimpleNamespace:
        """Its size, as `st_size`."""
        return SimpleNamespace(st_size=int(self._info()["size"] or 0))

    def read_bytes(self) -> bytes:
        """All of it."""
        size: int = self.stat().st_size
        return bytes(self.store.call(self.url, lambda system: system.cat_file(self.key), size))

    def open(self, _mode: str = "rb") -> io.BufferedReader:
        """A reader, which fetches parts as they are read."""
        return io.BufferedReader(_Parts(self, self.stat().st_size), _READ_AHEAD_BYTES)

    def write_bytes(self, data: bytes) -> None:
        """Put all of it in place, over what is there."""
        self.store.call(self.url, lambda system: system.pipe_file(self.key, data), len(data))

    def begin_upload(self, path: Path) -> Future[None]:
        """Put a file in place, in the background; it is read until that is done."""
        size = path.stat().st_size
        return _begin(lambda: self.store.call(self.url, lambda system: system.put_file(str(path), self.key), size))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove it."""
        try:
            self.store.call(self.url, lambda system: system.rm_file(self.key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _info(self) -> dict[str, Any]:
        return dict(self.store.call(self.url, lambda system: _anew(system).info(self.key)))

    def _list(self) -> list[dict[str, Any]]:
        try:
            return list(self.store.call(self.url, lambda system: _anew(system).ls(self.key, detail=True)))
        except (FileNotFoundError, NotADirectoryError):
            return []


Place = Path | StorePath


class _Parts(io.RawIOBase):
    def __init__(self, path: StorePath, size_bytes: int) -> None:
        self._path, self._size_bytes, self._position = path, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._size_bytes)
        if stop <= self._position:
            return 0
        path, start = self._path, self._position
        part = path.store.call(path.url, lambda system: system.cat_file(path.key, start=start, end=stop), stop - start)
        view[: len(part)] = part
        self._position += len(part)
        return len(part)


def place_of(text: str) -> Place:
    """A folder, or the place of a URL such as `s3://bucket/prefix`.

    Raises:
        BadInput: it is no URL, it holds a password, or what it needs is not installed.
    """
    if "://" not in text:
        return Path(text)
    found = _URL.fullmatch(text)
    if found is None:
        raise BadInput(plain_line(f"checkpoints at {text[:80]}: is no URL such as s3://bucket/prefix"))
    scheme, rest = found.groups()
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and ":" in user:
        raise BadInput(f"the {scheme} URL of checkpoints holds a password; leave it to the store's own variables")
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415  # folders do without it
    except ImportError as error:
        raise BadInput(
            f"checkpoints at {text} need fsspec, which is not installed: pip install 'fedl2[stores]', and the package "
            f"that knows {scheme}, such as s3fs"
        ) from error
    try:
        system, key = url_to_fs(text.rstrip("/"), skip_instance_cache=True)
    except Exception as error:  # of each store's own kind, about what it is made from
        raise BadInput(
            plain_line(
                f"checkpoints at {text}: {_words(error)}; install the package that knows {scheme}, such as s3fs, and "
                "see to the variables that it reads",
                2 * _LONGEST_LINE,
            )
        ) from error
    if hasattr(system, "auto_mkdir"):  # fsspec's own files, which unlike objects are in folders
        system.auto_mkdir = True
    return StorePath(ObjectStore(system), text.rstrip("/"), key.rstrip("/"))


def make_folder(place: Place) -> None:
    """Make a folder of checkpoints, or try to write to its store.

    Raises:
        OSError: it cannot be made or written to.
    """
    if isinstance(place, Path):
        place.mkdir(parents=True, exist_ok=True)
    else:
        (place / ".writable").write_bytes(b"checkpoints of a job of fedl2\n")


def put_whole(place: Place, data: bytes) -> None:
    """Put a file or object in place, as a whole or not at all.

    Raises:
        OSError: it could not be written.
    """
    if isinstance(place, Path):
        write_whole(place, data, mode=0o644, alone=True)
    else:
        place.write_bytes(data)


def _anew(system: Any) -> Any:
    """A file system that has forgotten what it saw before: others write there too."""
    system.invalidate_cache()
    return system


def _begin(function: Callable[[], _T]) -> Future[_T]:
    """Call something in a thread of its own, which nobody has to wait for, also not at the process's end."""
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="object-store", daemon=True).start()
    return answer


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _translated(url: str, error: Exception) -> OSError:
    """The system's own error; never EIO, which says of a disk that what was written is lost."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, FileNotFoundError):
        number = errno.ENOENT
    elif isinstance(error, PermissionError):
        number = errno.EACCES
    elif isinstance(error, TimeoutError):
        number = errno.ETIMEDOUT
    elif number in (None, errno.EIO):
        number = errno.EREMOTEIO
    why = "it took too long" if isinstance(error, TimeoutError) else plain_line(_words(error), _LONGEST_LINE)
    return OSError(number, why, url)

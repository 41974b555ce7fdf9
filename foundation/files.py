"""Files that are whole or absent, whenever their writer dies, and names of files as people type them.

A file is written under another name, its partial, and takes its own name last. *Durable* means that it is also there
after the machine's death: the bytes and the folder's entry are on disk when the call returns.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from foundation.text import nearest

Buffer = bytes | memoryview

PARTIAL: Final = ".partial"
"""What the name of a file that is not finished ends with."""
PRIVATE: Final = 0o600
"""The mode of files that hold a secret."""
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK})
"""What a file system says that knows no second name of a file."""
_BUFFERS_A_WRITE = 512
"""Systems take 1024 at once."""
SMALL_BYTES: Final = 16 << 20
"""More than any record of ours has."""
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""To name what is in it, which needs no right to list it."""
_AT_ONCE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_ordinary(
    path: Path, flags: int = os.O_RDONLY, mode: int = PRIVATE, *, below: Path | None = None, follow: bool = False
) -> int:
    """Open a file where others, such as a user's script, may have put something else under its name.

    A pipe makes nobody wait, and no link leads to another place.

    Args:
        below: a folder above it, from which on no folder may be a link either; None: its folder may.
        follow: whether the file may be a link: its name is its owner's to give.

    Returns:
        A descriptor of an ordinary file, not inherited.

    Raises:
        OSError: it is not there, is something else, or may not be opened.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "it is no path of a file", str(path))
    folder = _open_folder(path.parent, below)
    flags |= _AT_ONCE if follow else _AT_ONCE | os.O_NOFOLLOW
    try:
        descriptor = os.open(path.name, flags, mode, dir_fd=folder)
    except OSError as error:
        raise _other_kind(error, path, follow=follow) from error
    finally:
        os.close(folder)
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(stat.S_IFMT(found), 'something else')}, and no file", str(path))
    return descriptor


def read_ordinary(
    path: Path, most_bytes: int = SMALL_BYTES, *, below: Path | None = None, follow: bool = False
) -> bytes:
    """The whole content of a small file; see `open_ordinary`.

    Raises:
        OSError: it cannot be opened so, cannot be read, or has more than `most_bytes`.
    """
    with open(open_ordinary(path, below=below, follow=follow), "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EOVERFLOW, f"it has more than the {most_bytes:,} bytes of any such file", str(path))
        try:
            return file.read(most_bytes)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def _open_folder(folder: Path, below: Path | None) -> int:
    """A folder's descriptor; no folder on the way from `below` is a link."""
    if below is None:
        return os.open(folder, _FOLDER)
    descriptor, reached = os.open(below, _FOLDER), below
    for name in folder.relative_to(below).parts:
        outer, reached = descriptor, reached / name
        try:
            descriptor = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=outer)
        except OSError as error:
            raise _other_kind(error, reached) from error
        finally:
            os.close(outer)
    return descriptor


def _other_kind(error: OSError, path: Path, *, follow: bool = False) -> OSError:
    """The error with the whole path, and with what stands there where the system says that in other words."""
    reason = error.strerror
    if path.is_symlink() and not follow:
        reason = "it is a link, which is not followed"
    elif error.errno == errno.EISDIR:
        reason = "it is a folder, and no file"
    elif error.errno == errno.ENXIO:
        reason = "it is a pipe or a socket, and no file"
    return OSError(error.errno, reason, str(path))


def write_whole(
    path: Path,
    data: str | Buffer | Sequence[Buffer],
    *,
    durable: bool = True,
    mode: int = 0o666,
    alone: bool = False,
    below: Path | None = None,
) -> None:
    """Put a file in place, as a whole or not at all.

    Args:
        data: the content, a text as UTF-8; several buffers stand one behind the other.
        durable: whether it outlasts the machine's death. Without it a file guards against the writer's death only.
        mode: who may do what, less the process's umask; from the first byte on.
        alone: no other process writes into this folder. The partial's name is fixed then, so that what a crash left of
            it is written over; otherwise it holds the process's number.
        below: a folder above it, from which on no folder may be a link; see `open_ordinary`.

    Raises:
        OSError: it could not be written; nothing is left of it, and what stood there before still stands.
    """
    partial = path.name + PARTIAL if alone else f".{path.name}.{os.getpid()}{PARTIAL}"
    folder = _open_folder(path.parent, below)
    try:
        try:
            _remove(partial, folder)  # it may have another mode
            _write_new(partial, _buffers(data), mode, folder, durable=durable)
            os.replace(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            _remove(partial, folder)
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(folder)
    if durable:
        sync_folder(path.parent)


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def write_first(path: Path, data: bytes, *, mode: int = 0o666) -> bool:
    """Put a file in place, whole and durable, unless there is one: of several who do so at once, one does.

    Args:
        mode: who may do what, less the process's umask; from the first byte on.

    Returns:
        Whether this content is there now; False: somebody else's, whole but for a moment where a file can have one name
        only, as on some network volumes.

    Raises:
        OSError: it could not be written, and nothing is left of it.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        _write_new(partial, (data,), mode)
        try:
            os.link(partial, path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _write_exclusively(path, data, mode)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def _write_exclusively(path: Path, data: bytes, mode: int) -> bool:
    try:
        _write_new(path, (data,), mode)
    except FileExistsError:
        return False
    sync_folder(path.parent)
    return True


def _write_new(
    path: str | Path, buffers: Sequence[Buffer], mode: int, folder: int | None = None, *, durable: bool = True
) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
    try:
        write_at(descriptor, 0, buffers)
        if durable:
            os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


def _buffers(data: str | Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    if isinstance(data, str):
        return (data.encode(),)
    return (data,) if isinstance(data, bytes | memoryview) else data


def write_at(descriptor: int, offset: int, buffers: Sequence[Buffer]) -> int:
    """Write buffers one behind the other, however many calls that takes.

    Args:
        descriptor: an open file; its position does not count and does not change.
        offset: where the first byte goes.

    Returns:
        The offset behind the last byte.

    Raises:
        OSError: the disk refused; any part may have been written.
    """
    left = [memoryview(buffer) for buffer in buffers if len(buffer)]
    while left:
        written = os.pwritev(descriptor, left[:_BUFFERS_A_WRITE], offset)
        offset += written
        whole = 0
        while whole < len(left) and written >= len(left[whole]):
            written -= len(left[whole])
            whole += 1
        left = left[whole:]
        if written:
            left[0] = left[0][written:]
    return offset


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable.

    Raises:
        OSError: it cannot be.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable_folder(folder: Path) -> None:
    """Make a folder, and those above it, durable.

    Raises:
        OSError: it cannot be.
    """
    if not folder.is_dir():
        make_durable_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def is_file(path: Path) -> bool:
    """Whether something stands under this name, and it is no folder."""
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # a name too long, say, or with a null character
        return False


def is_folder(path: Path) -> bool:
    """Whether a folder stands under this name."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # as above
        return False


def near_file(path: Path) -> Path | None:
    """The file beside a name that was probably meant by it, as the name was typed; None if none is like it.

    Names are alike without their ending, as every csv is like another by that; one of the same ending comes first.
    """
    try:
        names = sorted(each.name for each in path.parent.iterdir() if each.is_file() and not each.name.startswith("."))
    except (OSError, ValueError):  # no such folder, or a name that none can have
        return None
    same = {Path(name).stem: name for name in names if Path(name).suffix == path.suffix}
    others = {Path(name).stem: name for name in names}
    for known in (same, others):
        stem = nearest(path.stem, known)
        if stem is not None:
            return path.with_name(known[stem])
    return None


def check_replaceable(path: Path) -> None:
    """See that a file may take this name: it is free, or an ordinary file's.

    A file that takes its name last would replace a device such as /dev/null for everybody on the machine. Raises
    OSError if the name is a folder's, a device's or a pipe's, or cannot be one.
    """
    try:
        nameless = b"\0" in path.name.encode()
        taken = not nameless and path.exists()
    except ValueError:
        nameless = True
    if nameless:
        raise OSError(errno.EINVAL, "no file can have this name", str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if taken and not path.is_file():
        raise OSError(errno.EINVAL, "it is a device or a pipe, and no file", str(path))

"""Bytes of a file that a user brings, gzip'ed or not; opened once, so that a pipe does as well."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from policy_net.errors import BadInput

_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading; what its first two bytes say counts, not its name.

    Raises:
        BadInput: it cannot be opened or read, or its compression is damaged; also while it is read inside the block.
    """
    try:
        with ExitStack() as stack:
            plain = stack.enter_context(path.open("rb"))
            if plain.peek(2)[:2] == _GZIP_MAGIC:
                yield cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=plain)))
            else:
                yield plain
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: the gzip file is cut short or damaged ({error}); copy or compress it anew") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot read the file: {error.strerror}; give the path of a readable file") from error

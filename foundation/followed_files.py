"""Values that are made of files which somebody else replaces: made again when the files change.

Certificates, tokens and keys are replaced file by file, or all at once by the swap of a symbolic link, as Kubernetes
does. Where a look meets a certificate without its key, or an empty file, what was read before serves on. Contents are
compared, and no times, which a copy may keep.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from foundation.files import read_ordinary

Value = TypeVar("Value")
Content = Callable[[Path], bytes]
"""Reads a file's content, and notes that a value is made of it; raises OSError."""

POLL_SECONDS = 10.0
"""Least time between two looks. A look reads a few kilobytes; Kubernetes itself takes a minute to bring a changed
Secret to its pods."""
_MOST_BYTES = 4 << 20
"""A bundle of every public authority takes a quarter of a megabyte."""


def content_of(path: Path) -> bytes:
    """The content of a file of such a kind, whatever link leads to it.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than any is.
    """
    return read_ordinary(path, _MOST_BYTES, follow=True)


class FollowedFiles(Generic[Value]):
    """A value made of files; safe to use from several threads.

    Args:
        make: makes the value of what it reads by the function that it is given.
        unusable: what `make` raises of files that cannot be used; an OSError is always one.
        on_replaced: is told each value that takes the place of another one.
        on_refused: is told why the files that are there now are not used, once in a row for each reason.
        poll_seconds: least time between two looks.
    """

    def __init__(
        self,
        make: Callable[[Content], Value],
        unusable: type[Exception] | tuple[type[Exception], ...] = (),
        on_replaced: Callable[[Value], None] = lambda _: None,
        on_refused: Callable[[str], None] = lambda _: None,
        poll_seconds: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read for the first time. Raises whatever `make` does: there is nothing from before that could serve."""
        self._make = make
        given = unusable if isinstance(unusable, tuple) else (unusable,)
        self._unusable: tuple[type[Exception], ...] = (*given, OSError)
        self._on_replaced, self._on_refused = on_replaced, on_refused
        self._poll_seconds, self._clock = poll_seconds, clock
        self._lock = threading.Lock()
        self.refusal = ""
        self._polled_at = clock()
        self.value, self._contents = self._made()

    def current(self) -> Value:
        """What serves now, after a look at the files if the last one is some time ago."""
        with self._lock:
            now = self._clock()
            if now - self._polled_at >= self._poll_seconds:
                self._polled_at = now
                self._poll()
            return self.value

    def _poll(self) -> None:
        try:
            same = all(content_of(path) == content for path, content in self._contents.items())
            if same and not self.refusal:
                return
            value, contents = self._made()
        except self._unusable as error:
            reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            if reason != self.refusal:
                self.refusal = reason
                self._on_refused(reason)
            return
        changed = contents != self._contents
        self.value, self._contents, self.refusal = value, contents, ""
        if changed:
            self._on_replaced(value)

    def _made(self) -> tuple[Value, dict[Path, bytes]]:
        contents: dict[Path, bytes] = {}

        def content(path: Path) -> bytes:
            contents[path] = content_of(path)
            return contents[path]

        return self._make(content), contents

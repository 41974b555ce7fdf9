"""Contexts of policyctl: learners by name, each with the files that its connection needs, in a file of the user's own.

The file holds addresses and names of files, and no key: keys stay where they are. It says which learner a command
reaches, so one that others may write is not read.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foundation.files import PRIVATE, write_whole
from foundation.locks import FileLock, LockHeld
from foundation.text import parse_json
from global_learner.errors import BadLearnerConfig
from global_learner.operator_socket import SCHEME

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SOCKET = re.compile(r"unix:[^\0]{1,4000}")
_ADDRESS = re.compile(r"[A-Za-z0-9._-]{1,253}:\d{1,5}|\[[0-9A-Fa-f:.]{2,45}\]:\d{1,5}")
_LARGEST_FILE_BYTES = 1 << 20
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Context:
    """A learner, and how to reach it.

    Attributes:
        learner: HOST:PORT, or a socket by its absolute path.
        ca: certificates that the learner's is checked against (PEM).
        cert: the caller's certificate, or identity file (PEM).
        key: its private key (PEM), if the certificate's file does not hold it.
    """

    learner: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by name, and which one holds where none is named."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str, file: Path) -> Context:
        """Context of a name.

        Raises:
            BadConfig: there is none of that name.
        """
        if name in self.by_name:
            return self.by_name[name]
        names = sorted(self.by_name)
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        known = f"there are {', '.join(names[:_MOST_SHOWN])}{more}" if names else "there is none"
        raise BadLearnerConfig(
            f"context {name[:80]!r}: no such one in {file}; {known}. `policyctl context set` makes one"
        )

    def with_context(self, name: str, context: Context) -> Contexts:
        """With one more, or another one in its place; the first one is the current one.

        Raises:
            BadConfig: the name, or the address, can be none.
        """
        if _NAME.fullmatch(name) is None:
            raise BadLearnerConfig(
                f"context {name[:80]!r}: a name has at most 63 of letters, digits, dots, - and _, and begins with a "
                "letter or a digit"
            )
        check_address(context.learner)
        return Contexts({**self.by_name, name: context}, self.current or name)

    def using(self, name: str, file: Path) -> Contexts:
        """With another current one; raises BadConfig if there is none of that name."""
        self.named(name, file)
        return Contexts(self.by_name, name)

    def without(self, name: str, file: Path) -> Contexts:
        """With one less; if it was the current one, none is.

        Raises:
            BadConfig: there is none of that name.
        """
        self.named(name, file)
        rest = {other: context for other, context in self.by_name.items() if other != name}
        return Contexts(rest, None if self.current == name else self.current)


def check_address(learner: str) -> bool:
    """Whether an address is a socket's, not HOST:PORT.

    Raises:
        BadConfig: it is neither.
    """
    local = _SOCKET.fullmatch(learner) is not None
    if not local and not _ADDRESS.fullmatch(learner):
        raise BadLearnerConfig(
            f"--learner {learner[:80]!r}: must be HOST:PORT, such as 127.0.0.1:7070, or a learner's socket, "
            "unix:STATE_DIR/operator.sock"
        )
    return local


def absolute_address(learner: str) -> str:
    """An address that means the same in every folder."""
    path = learner.removeprefix(SCHEME)
    return learner if path == learner else f"{SCHEME}{Path(path).absolute()}"


def contexts_file(environment: Mapping[str, str]) -> Path:
    """File of contexts: below $XDG_CONFIG_HOME, else below ~/.config.

    Raises:
        BadConfig: there is neither.
    """
    stated = environment.get("XDG_CONFIG_HOME", "")
    # The standard says that a relative one is to be ignored.
    if not stated.startswith("/"):
        try:
            stated = str(Path(environment.get("HOME") or "~").expanduser() / ".config")
        except RuntimeError as error:
            raise BadLearnerConfig(
                "contexts: there is no home folder to keep them in; set HOME or XDG_CONFIG_HOME"
            ) from error
    return Path(stated) / "fedl2" / "policyctl.json"


def read_contexts(file: Path) -> Contexts:
    """The contexts of a file; none if it is not there.

    Raises:
        BadConfig: it cannot be read, others may write it, or it holds something else.
    """
    try:
        with file.open("rb") as stream:
            found = os.fstat(stream.fileno())
            if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or found.st_uid not in (os.geteuid(), 0):
                raise BadLearnerConfig(
                    f"{file}: others may write it, and so say whom you reach; make it your own: chmod 600"
                )
            data = stream.read(_LARGEST_FILE_BYTES)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise BadLearnerConfig(
            f"{file}: contexts cannot be read ({error.strerror}); mend the file, or remove it"
        ) from error
    try:
        return _parsed(parse_json(data.decode("utf-8")))
    except (ValueError, TypeError, KeyError) as error:
        raise BadLearnerConfig(f"{file}: holds no contexts; remove it, and make them anew") from error


def _parsed(content: Any) -> Contexts:
    by_name = {str(name): Context(**entry) for name, entry in dict(content["contexts"]).items()}
    current = content["current"]
    texts = [value for context in by_name.values() for value in dataclasses.astuple(context)]
    if not all(value is None or isinstance(value, str) for value in (*texts, current)):
        raise TypeError("addresses and names of files are texts")
    if any(not isinstance(context.learner, str) for context in by_name.values()) or current not in (None, *by_name):
        raise ValueError("no learner, or a current context that is not there")
    return Contexts(by_name, current)


def changed(file: Path, change: Callable[[Contexts], Contexts]) -> tuple[Contexts, Contexts]:
    """Change a file of contexts under a lock, so that no other change is lost; contexts before and after.

    Raises:
        BadConfig: another command changes it right now, it cannot be read or written, or `change` refuses.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(file.with_name(f"{file.name}.lock"))
    except LockHeld as error:
        raise BadLearnerConfig(f"{file}: another policyctl changes contexts right now; try again") from error
    except OSError as error:
        raise BadLearnerConfig(f"{file}: contexts cannot be kept there ({error.strerror})") from error
    with lock:
        before = read_contexts(file)
        after = change(before)
        write_contexts(file, after)
        return before, after


def write_contexts(file: Path, contexts: Contexts) -> None:
    """Replace a file of contexts whole or not at all, for its owner alone.

    Raises:
        BadConfig: it cannot be written.
    """
    content = {
        "current": contexts.current,
        "contexts": {name: dataclasses.asdict(context) for name, context in sorted(contexts.by_name.items())},
    }
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, json.dumps(content, indent=2) + "\n", mode=PRIVATE)
    except OSError as error:
        raise BadLearnerConfig(
            f"{file}: cannot be written ({error.strerror}); free space, or set XDG_CONFIG_HOME"
        ) from error

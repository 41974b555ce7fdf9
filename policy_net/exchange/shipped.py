"""Policy files that come with the package, by the names under which they are used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from foundation.files import is_file
from policy_net.errors import PolicyFileError
from policy_net.exchange.policy_file import PolicyFile, digest_of, read_policy_file
from policy_net.exchange.spec import DL2, SET, SET_TAUGHT
from policy_net.policy import policy_names

_PACKAGE = Path(__file__).parents[1]
SHIPPED_FILES: Mapping[str, Path] = MappingProxyType(
    {
        SET: _PACKAGE / "set_policy" / "default.safetensors",
        SET_TAUGHT: _PACKAGE / "set_policy" / "taught.safetensors",
        DL2: _PACKAGE / "dl2" / "default.safetensors",
    }
)


def file_of(named: Path) -> Path:
    """The file of a policy that ships, where its name is given in place of a file; else what is given.

    Raises:
        PolicyFileError: it names a heuristic, which has no file.
    """
    name = str(named)
    if name in SHIPPED_FILES or is_file(named):
        return SHIPPED_FILES.get(name, named)
    if name in policy_names():
        raise PolicyFileError(
            f"{name} is a scheduler without a file: name a policy file, or one that ships, {' or '.join(SHIPPED_FILES)}"
        )
    return named


@cache
def shipped_file(name: str) -> PolicyFile:
    """The file of a policy that ships, by its name, read once.

    Raises:
        PolicyFileError: it is missing or damaged: the package was installed badly.
    """
    return read_policy_file(SHIPPED_FILES[name])


def shipped_name(content: PolicyFile) -> str | None:
    """The name under which a policy ships; None of another.

    Raises:
        PolicyFileError: a shipped file is missing or damaged.
    """
    digest = digest_of(content.to_bytes())
    return next((name for name in SHIPPED_FILES if digest_of(shipped_file(name).to_bytes()) == digest), None)

"""Every file that a learner's state directory can hold, by the pattern of its path, and what finds damage in it.

A file that matches none of these fails the tests of damage and of modes: whoever adds one says here what finds it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from fnmatch import fnmatchcase
from types import MappingProxyType


class Finder(Enum):
    """What finds out that a file is damaged, or that nothing need."""

    STORES = auto()
    """What `accept-loss` reads, and every start: refused by its name, or nothing is lost."""
    IDENTITIES = auto()
    """The opening of identities at every start: refused, or made anew and said so."""
    CACHE = auto()
    """Its reader: what is damaged is computed again."""
    NOBODY = auto()
    """It holds nothing: a start makes of it what it needs."""


FILES: Mapping[str, Finder] = MappingProxyType(
    {
        "aggregation.json": Finder.STORES,
        "beliefs.sqlite": Finder.STORES,
        "beliefs.sqlite-wal": Finder.STORES,
        "commits": Finder.STORES,
        "heads/*.head": Finder.STORES,
        "identity/identities.sqlite": Finder.STORES,
        "identity/identities.sqlite-wal": Finder.STORES,
        "log/updates-*.log": Finder.STORES,
        "policies/*.safetensors": Finder.STORES,
        "quarantine.jsonl": Finder.STORES,
        "receipts/removed.json": Finder.STORES,
        "receipts/updates-*.jsonl": Finder.STORES,
        "registry.sqlite": Finder.STORES,
        "registry.sqlite-wal": Finder.STORES,
        "signing/root-*.json": Finder.STORES,
        "signing/root.key": Finder.STORES,
        "signing/timestamp.json": Finder.STORES,
        "signing/timestamp.key": Finder.STORES,
        "signing/version.key": Finder.STORES,
        "snapshots/head-*.snapshot": Finder.STORES,
        "identity/admin.pem": Finder.IDENTITIES,
        "identity/ca.key": Finder.IDENTITIES,
        "identity/ca.pem": Finder.IDENTITIES,
        "scores/baselines-*.json": Finder.CACHE,
        "*.sqlite-shm": Finder.NOBODY,
        "lock": Finder.NOBODY,
        "log/spare-*.log": Finder.NOBODY,
        "*.partial": Finder.NOBODY,
    }
)
SAID = ("signing/root.key", "identity/admin.pem", "identity/ca.pem")
"""May be taken away, or made anew, by somebody who means it: a line of the log names the file at every start."""


def pattern_of(name: str) -> str:
    """The one pattern that a file matches.

    Raises:
        AssertionError: nobody has said what finds damage in it.
    """
    found = [pattern for pattern in FILES if fnmatchcase(name, pattern)]
    assert len(found) == 1, f"{name}: a new file of the state directory? Say in state_files.py what finds its damage"
    return found[0]

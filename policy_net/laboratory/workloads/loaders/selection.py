"""A part of a recording: one virtual cluster of several."""

from __future__ import annotations

from pathlib import Path

from policy_net.errors import BadInput
from policy_net.laboratory.csv_rows import shown

_MOST_LISTED = 40


class Selection:
    """The rows with one value of a field, or all of them."""

    def __init__(self, field: str, wanted: str | None) -> None:
        self._field = field
        self._wanted = wanted
        self._others: set[str] = set()
        self._found = 0

    def wants(self, value: str) -> bool:
        """Whether a row with this value belongs to the part."""
        if self._wanted is None or value == self._wanted:
            self._found += 1
            return True
        if len(self._others) < _MOST_LISTED:
            self._others.add(value)
        return False

    def notes(self, path: Path) -> tuple[str, ...]:
        """What was selected.

        Raises:
            BadInput: no row has the value.
        """
        if self._wanted is None:
            return ()
        if not self._found:
            known = ", ".join(sorted(shown(value) for value in self._others))
            raise BadInput(f"{path}: no row with {self._field} {self._wanted!r}; it has {known or 'no such field'}")
        return (f"only {self._field} {self._wanted}",)

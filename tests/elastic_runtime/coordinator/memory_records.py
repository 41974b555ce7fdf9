"""Records that are kept nowhere, for coordinators that need not remember anything."""

from __future__ import annotations

from typing import Any

from elastic_runtime.coordinator.rules.state import CoordinatorState


class MemoryRecords:
    """Takes every record and forgets it."""

    full = False

    def append(self, _record: dict[str, Any]) -> bool:
        """Always."""
        return True

    def cut(self, _state: CoordinatorState) -> None:
        """There is nothing to forget."""

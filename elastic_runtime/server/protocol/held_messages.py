"""Messages that came before the view that says what to do with them."""

from __future__ import annotations

from elastic_runtime.protocol.block_runs import Payload
from elastic_runtime.protocol.messages import Header

Held = tuple[str, Header, Payload]
"""From whom, and what."""
_MOST_HELD = 65536


class HeldMessages:
    """What one server keeps until a newer view comes, in order."""

    def __init__(self) -> None:
        self._held: list[Held] = []

    def keep(self, peer: str, header: Header, payload: Payload) -> bool:
        """Keep a message; whether there was room. Whoever sent it asks again."""
        if len(self._held) >= _MOST_HELD:
            return False
        self._held.append((peer, header, payload))
        return True

    def take(self) -> list[Held]:
        """All of them; they are kept no longer."""
        held, self._held = self._held, []
        return held

    def forget_before(self, generation: int) -> None:
        """Drop those of older generations."""
        self._held = [entry for entry in self._held if entry[1].generation >= generation]

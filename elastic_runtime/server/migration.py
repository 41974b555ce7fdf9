"""The blocks that a parameter server is to give away or to get, and how far that has come.

A block leaves when the last step before its flip is applied; its old owner keeps the copy until the whole change is
committed, and sends it again until the new owner has said that it arrived.

Source: DL2 §5. Deviation: blocks leave one by one behind the training, not all while it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from elastic_runtime.plan import Change, Timeline


@dataclass(slots=True)
class Departure:
    """A block on its way out."""

    target: str
    at: int
    change: int
    sent_seconds: float | None = None
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A block to come."""

    source: str
    at: int
    change: int


class Migration:
    """Departures and arrivals of one PS in one generation.

    Args:
        name: of the PS.
        resend_seconds: how long an arrival may stay unconfirmed before the block is sent again.
    """

    def __init__(self, name: str, resend_seconds: float) -> None:
        self._name = name
        self._resend_seconds = resend_seconds
        self._departures: dict[int, Departure] = {}
        self._arrivals: dict[int, Arrival] = {}
        self._known = 0

    def learn(self, timeline: Timeline, changes: Iterable[Change]) -> list[int]:
        """Take up changes not known yet; returns the blocks that are to leave."""
        leaving = []
        for change in changes:
            if change.number <= self._known:
                continue
            self._known = change.number
            for block, (source, target, at) in timeline.moved_by(change).items():
                if source == self._name:
                    self._departures[block] = Departure(target, at, change.number)
                    leaving.append(block)
                elif target == self._name:
                    self._arrivals[block] = Arrival(source, at, change.number)
        return leaving

    def departure(self, block: int) -> Departure | None:
        """Where a block goes, if it leaves."""
        return self._departures.get(block)

    def leaving(self, block: int) -> Departure:
        """The departure of a block that has one.

        Raises:
            KeyError: it stays.
        """
        return self._departures[block]

    def arrival(self, block: int) -> Arrival | None:
        """Where a block comes from, if it is still to come."""
        return self._arrivals.get(block)

    @property
    def arriving(self) -> bool:
        """Whether blocks are still to come."""
        return bool(self._arrivals)

    def arrived(self, block: int) -> None:
        """The block is here."""
        self._arrivals.pop(block, None)

    def adopted(self, block: int, by: str) -> None:
        """Its new owner has the block."""
        departure = self._departures.get(block)
        if departure is not None and departure.target == by:
            departure.adopted = True

    def complete_up_to(self) -> int:
        """Number of the newest change of which, and of all before, everything that comes here has come."""
        if not self._arrivals:
            return self._known
        return min(arrival.change for arrival in self._arrivals.values()) - 1

    def release(self, committed: int) -> list[int]:
        """Forget what left with changes up to `committed`; returns the blocks whose copies may go."""
        gone = [block for block, departure in self._departures.items() if departure.change <= committed]
        for block in gone:
            del self._departures[block]
        return gone

    def to_send(self) -> list[int]:
        """Blocks that leave and were not sent yet, in order."""
        return sorted(block for block, departure in self._departures.items() if departure.sent_seconds is None)

    def on_the_way(self) -> list[int]:
        """Blocks that were sent, and whose arrival nobody confirmed."""
        return [
            b
            for b, departure in self._departures.items()
            if departure.sent_seconds is not None and not departure.adopted
        ]

    def to_send_again(self, now_seconds: float) -> Iterator[int]:
        """Blocks sent long ago whose arrival nobody confirmed."""
        for block, departure in self._departures.items():
            sent = departure.sent_seconds
            if sent is not None and not departure.adopted and now_seconds - sent >= self._resend_seconds:
                yield block

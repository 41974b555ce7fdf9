"""The blocks that a parameter server is to give away or to get, and how far that has come.

A block leaves when the last step before its flip is applied; its old owner keeps the copy until the whole change is
committed, and sends it again until the new owner has said that it arrived. Where a block only gets another holder, the
one that has it goes on with it, but applies nothing to it from the flip on until the copy has arrived.

Source: DL2 §5. Deviation: blocks leave one by one behind the training, not all while it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from elastic_runtime.protocol.plan import Change, Timeline, Transfer, transfers


@dataclass(slots=True)
class Departure:
    """A block on its way to one that gets it; `target` is empty if it leaves and goes to nobody.

    `stays`: the block is not given away, but copied.
    """

    target: str
    at: int
    change: int
    stays: bool = False
    sent_seconds: float | None = None
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A block to come, from any of `sources`, of which the first is to send it if it can."""

    sources: tuple[str, ...]
    at: int
    change: int

    @property
    def source(self) -> str:
        """Who is to send it."""
        return self.sources[0]


class Migration:
    """Departures and arrivals of one PS in one generation.

    Args:
        name: of the PS.
        resend_seconds: how long an arrival may stay unconfirmed before the block is sent again.
    """

    def __init__(self, name: str, resend_seconds: float) -> None:
        self._name = name
        self._resend_seconds = resend_seconds
        self._departures: dict[int, list[Departure]] = {}
        self._arrivals: dict[int, Arrival] = {}
        self._known = 0
        self._lost: frozenset[str] = frozenset()
        self._open: dict[int, list[Transfer]] = {}

    def on_changes(self, timeline: Timeline, changes: Iterable[Change]) -> list[int]:
        """Take up changes, and losses of servers, not known yet; returns the blocks that are to be sent."""
        leaving = []
        if timeline.lost != self._lost:
            self._lost = timeline.lost
            for number, found in self._open.items():
                leaving += self._depart(number, found)
        for change in changes:
            if change.number <= self._known:
                continue
            self._known = change.number
            found = transfers(change, timeline.before(change))
            if found:
                self._open[change.number] = found
            leaving += self._depart(change.number, found)
            for transfer in found:
                if self._name in transfer.coming:
                    first = transfer.source(self._name)
                    others = (name for name in (*transfer.leaving, *transfer.staying) if name != first)
                    self._arrivals[transfer.block] = Arrival((first, *others), transfer.at, change.number)
        return leaving

    def _depart(self, number: int, found: Iterable[Transfer]) -> list[int]:
        """See to it that this PS sends what it is the source of, given who is lost."""
        leaving = []
        for transfer in found:
            stays = self._name in transfer.staying
            if not stays and self._name not in transfer.leaving:
                continue
            targets = [
                name
                for name in transfer.coming
                if name not in self._lost and transfer.source(name, self._lost) == self._name
            ]
            before = {departure.target: departure for departure in self._departures.get(transfer.block, ())}
            now = [before.get(name) or Departure(name, transfer.at, number, stays) for name in targets]
            if not now and not stays:
                now = [Departure("", transfer.at, number, sent_seconds=0.0, adopted=True)]
            if now:
                self._departures[transfer.block] = now
                leaving.append(transfer.block)
            else:
                self._departures.pop(transfer.block, None)
        return leaving

    def departure(self, block: int) -> Departure | None:
        """Where a block goes, if it leaves, or is copied."""
        departures = self._departures.get(block)
        return departures[0] if departures else None

    def leaving(self, block: int) -> Departure:
        """The first departure of a block that has one.

        Raises:
            KeyError: it stays.
        """
        return self._departures[block][0]

    def departures(self, block: int) -> list[Departure]:
        """Everywhere that a block goes."""
        return self._departures.get(block, [])

    def arrival(self, block: int) -> Arrival | None:
        """Where a block comes from, if it is still to come."""
        return self._arrivals.get(block)

    @property
    def arriving(self) -> bool:
        """Whether blocks are still to come."""
        return bool(self._arrivals)

    def on_arrived(self, block: int) -> None:
        """The block is here."""
        self._arrivals.pop(block, None)

    def on_adopted(self, block: int, by: str) -> None:
        """Its new owner has the block."""
        for departure in self._departures.get(block, ()):
            if departure.target == by:
                departure.adopted = True

    def complete_up_to(self) -> int:
        """Number of the newest change of which, and of all before, everything that comes here has come."""
        if not self._arrivals:
            return self._known
        return min(arrival.change for arrival in self._arrivals.values()) - 1

    def release(self, committed: int) -> list[int]:
        """Forget what left with changes up to `committed`; returns the blocks whose copies may go."""
        gone = [block for block, (departure, *_) in self._departures.items() if departure.change <= committed]
        copies = [block for block in gone if not self._departures.pop(block)[0].stays]
        for number in [number for number in self._open if number <= committed]:
            del self._open[number]
        return copies

    def to_send(self) -> list[int]:
        """Blocks that leave and were not sent yet, in order."""
        return sorted(block for block, departure in self._all() if departure.sent_seconds is None)

    def on_the_way(self) -> list[int]:
        """Blocks that were sent, and whose arrival nobody confirmed."""
        return [b for b, departure in self._all() if departure.sent_seconds is not None and not departure.adopted]

    def to_send_again(self, now_seconds: float) -> Iterator[int]:
        """Blocks sent long ago whose arrival nobody confirmed."""
        for block, departure in self._all():
            sent = departure.sent_seconds
            if sent is not None and not departure.adopted and now_seconds - sent >= self._resend_seconds:
                yield block

    def _all(self) -> Iterator[tuple[int, Departure]]:
        return ((block, departure) for block, several in self._departures.items() for departure in several)

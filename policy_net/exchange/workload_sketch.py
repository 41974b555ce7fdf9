"""Sketch of a cluster's work: how large it is, how often jobs come, and how large and long they are, in a few numbers.

It names no job, user, model, path or time. Agents make it where their operator wants it, the learner replays versions
on workloads of its kind; both check it, as a sketch that cannot be is refused whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from google.protobuf.message import Message

from policy_net.domain import JobKind
from policy_net.errors import BadInput
from policy_net.exchange.generated import fleet_pb2

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of which a sketch says the values."""
PARTS_OF_DAY = 8
"""Of three hours each, from midnight UTC."""
MOST_NODES = 16_384
MOST_JOBS_A_DAY = 1_000_000.0
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 90 * 86_400.0
_OF_QUANTILES = ("run_seconds", "workers", "ps")
_MOST_OF_A_NODE = 1024
_SHARES_MAY_MISS = 0.5
"""By so much the shares of a sketch, which are rounded, may add up to something else than one."""


@dataclass(frozen=True, slots=True)
class KindSketch:
    """Jobs of one way to train.

    Attributes:
        run_seconds: quantiles of the time that a job's work takes at the size that it asked for.
        workers, ps: quantiles of that size.
    """

    kind: JobKind
    share: float
    run_seconds: tuple[float, ...]
    workers: tuple[int, ...]
    ps: tuple[int, ...]

    def __post_init__(self) -> None:
        where = f"the sketch of {self.kind.value} jobs"
        if not 0.0 < self.share <= 1.0:
            raise BadInput(f"{where}: share is {self.share}: use a number above 0 and at most 1")
        least_ps = 1 if self.kind.uses_ps else 0
        _check_quantiles(f"{where}: run_seconds", self.run_seconds, SHORTEST_SECONDS, LONGEST_SECONDS)
        _check_quantiles(f"{where}: workers", self.workers, 1, self.kind.most_workers)
        _check_quantiles(f"{where}: ps", self.ps, least_ps, self.kind.most_ps)


@dataclass(frozen=True, slots=True)
class WorkloadSketch:
    """A cluster's work.

    Attributes:
        nodes, gpus_per_node, cpus_per_node: usually free for its jobs.
        day_shares: of the jobs, by part of the day; empty: nothing is said of it.

    Raises:
        BadInput: something of it cannot be; one line says what.
    """

    nodes: int
    gpus_per_node: int
    cpus_per_node: int
    jobs_a_day: float
    day_shares: tuple[float, ...]
    kinds: tuple[KindSketch, ...]

    def __post_init__(self) -> None:
        _check_range("the sketch: nodes", self.nodes, 1, MOST_NODES)
        _check_range("the sketch: gpus_per_node", self.gpus_per_node, 1, _MOST_OF_A_NODE)
        _check_range("the sketch: cpus_per_node", self.cpus_per_node, 1, _MOST_OF_A_NODE)
        _check_range("the sketch: jobs_a_day", self.jobs_a_day, 0.01, MOST_JOBS_A_DAY)
        if len(self.day_shares) not in (0, PARTS_OF_DAY):
            raise BadInput(f"the sketch: {len(self.day_shares)} day_shares: use {PARTS_OF_DAY}, or none")
        for share in self.day_shares:
            _check_range("the sketch: a day share", share, 0.0, 1.0)
        if self.day_shares:
            _check_sum("day_shares", self.day_shares)
        names = [entry.kind for entry in self.kinds]
        if not names or len(set(names)) != len(names):
            raise BadInput(f"the sketch: {len(names)} kinds, {len(set(names))} different: name each at most once")
        _check_sum("the kinds' shares", [entry.share for entry in self.kinds])

    @classmethod
    def of(cls, message: fleet_pb2.WorkloadSketch) -> WorkloadSketch:
        """From the wire.

        Raises:
            BadInput: it cannot be.
        """
        return cls.from_json({**_fields(message), "kinds": [_fields(entry) for entry in message.kinds]})

    def message(self) -> fleet_pb2.WorkloadSketch:
        """For the wire."""
        return fleet_pb2.WorkloadSketch(**asdict(self))

    def to_json(self) -> dict[str, Any]:
        """Values that `from_json` and `json.dumps` take."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> WorkloadSketch:
        """What `to_json` made.

        Raises:
            BadInput: it is something else.
        """
        try:
            kinds = tuple(
                KindSketch(_kind(row["kind"]), row["share"], *(tuple(row[name]) for name in _OF_QUANTILES))
                for row in content["kinds"]
            )
            return cls(**{**content, "day_shares": tuple(content["day_shares"]), "kinds": kinds})
        except (KeyError, TypeError) as error:
            raise BadInput(f"no sketch of a workload ({error!r})") from error


def _fields(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.DESCRIPTOR.fields_by_name}


def _kind(word: str) -> JobKind:
    try:
        return JobKind(word)
    except ValueError as error:
        known = ", ".join(kind.value for kind in JobKind)
        raise BadInput(f"the sketch: a kind is {word[:32]!r}: use one of {known}") from error


def _check_range(where: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise BadInput(f"{where} is {value:g}: use {least:g} to {most:g}")


def _check_quantiles(where: str, values: Sequence[float], least: float, most: float) -> None:
    if len(values) != len(QUANTILES):
        raise BadInput(f"{where}: {len(values)} quantiles: use {len(QUANTILES)}")
    for value in values:
        _check_range(where, value, least, most)
    if list(values) != sorted(values):
        raise BadInput(f"{where}: quantiles fall: let them rise")


def _check_sum(where: str, shares: Iterable[float]) -> None:
    total = math.fsum(shares)
    if not abs(total - 1.0) <= _SHARES_MAY_MISS:
        raise BadInput(f"the sketch: {where} add up to {total:g}: use shares of one")

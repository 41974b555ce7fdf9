"""What a state machine wants done by those who have files: a checkpoint to be completed, or a sound one to be found."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_runtime.control.messages import Shard


@dataclass(frozen=True)
class ManifestOrder:
    """All shards of a checkpoint are written: verify and complete it, and say so.

    `protected`: steps whose checkpoints members may still read. `leases_json`: of asynchronous training: which
    samples are done.
    """

    name: str
    generation: int
    step: int
    shards: tuple[Shard, ...]
    layout_json: str
    training_json: str
    protected: tuple[int, ...]
    leases_json: str = ""


@dataclass(frozen=True)
class SearchOrder:
    """Servers of a generation say that its checkpoint is damaged: find the newest sound one; `names`: newest first."""

    generation: int
    names: tuple[str, ...]


@dataclass
class Orders:
    """Collected while an event is handled; taken by whoever runs the machine."""

    manifests: list[ManifestOrder] = field(default_factory=list)
    searches: list[SearchOrder] = field(default_factory=list)

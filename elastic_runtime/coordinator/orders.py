"""What a state machine wants done by those who have files: complete a checkpoint, remove old ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_runtime.control.messages import Shard


@dataclass(frozen=True)
class ManifestOrder:
    """All shards of a checkpoint are written: verify and complete it, and say so."""

    name: str
    generation: int
    step: int
    shards: tuple[Shard, ...]


@dataclass
class Orders:
    """Collected while an event is handled; taken by whoever runs the machine."""

    manifests: list[ManifestOrder] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)

"""One request for a job that held GPUs in several pieces: attempts, tasks or pods, one after the other or together.

The request is the most GPUs that it held at one time; the duration is its GPU-seconds over that, so that the GPU time
is what was recorded, gaps between the pieces not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """GPUs held from start to end; fractions of a GPU are possible."""

    start_seconds: float
    end_seconds: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Held:
    """The job as one request."""

    gpus: float
    seconds: float


def as_one_request(pieces: Sequence[Piece]) -> Held:
    """The request that stands for all pieces; their ends must not lie before their starts."""
    lasting = [piece for piece in pieces if piece.gpus > 0 and piece.end_seconds > piece.start_seconds]
    if not lasting:
        return Held(max((piece.gpus for piece in pieces), default=0.0), 0.0)
    changes = [(piece.start_seconds, piece.gpus) for piece in lasting]
    changes += [(piece.end_seconds, -piece.gpus) for piece in lasting]
    peak = held = 0.0
    for _, gpus in sorted(changes):  # at the same moment what ends comes first
        held += gpus
        peak = max(peak, held)
    gpu_seconds = sum(piece.gpus * (piece.end_seconds - piece.start_seconds) for piece in lasting)
    return Held(peak, gpu_seconds / peak)

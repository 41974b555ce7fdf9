"""Whether versions are scored, and what that may take."""

from __future__ import annotations

from pydantic import Field

from policy_net.settings import Section


class ScoreSettings(Section):
    """Scores of versions on fixed replays, by a process of its own that runs after everything else."""

    enabled: bool = True
    """Every published version is replayed on the fixed replays, beside drf, optimus and oracle: a few CPU seconds each,
    one at a time, the newest first."""
    deadline_seconds: float = Field(600.0, gt=0.0, le=86_400.0)
    """Longest time, on the clock and of the processor, after which a version has no score. The replays take one to
    four seconds; a policy that schedules badly has long ones, and a busy machine leaves little to low priority."""
    nice: int = Field(10, ge=0, le=19)
    """Added to the process's niceness. 10 leaves a tenth of a busy core to it; at 19 a machine on which much runs
    may not get round to it before the deadline."""
    max_memory_mb: int = Field(2048, ge=512, le=1_048_576)
    """Address space of the process; it takes about a tenth of it. Beyond, it ends, and the version has no score."""

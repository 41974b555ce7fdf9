"""One job's life: how many workers and parameter servers it had, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from deploy.local.charts.style import CLUSTER_COLOURS


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """What one job held from each moment to the next; the last entry is its end."""

    job_id: str
    job_type: str
    cluster: str
    submit_seconds: float
    times_seconds: Sequence[float]
    workers: Sequence[int]
    ps: Sequence[int]

    @property
    def resizes(self) -> int:
        """How often what it held changed before its end."""
        held = list(zip(self.workers[:-1], self.ps[:-1], strict=True))
        return sum(before != after for before, after in pairwise(held))

    @property
    def mostly_several_workers(self) -> bool:
        """Whether it had more than one worker in most of the spans in which it trained."""
        trained = [workers for workers in self.workers[:-1] if workers > 0]
        return 2 * sum(workers > 1 for workers in trained) > len(trained)


def finding(timeline: JobTimeline) -> str:
    """What the chart says: how often the job was resized."""
    return f"Job {timeline.job_id} ({timeline.job_type}, {timeline.cluster}) is resized {timeline.resizes} times"


def draw_job(axes: Axes, timeline: JobTimeline) -> None:
    """Two step lines over the job's hours in the system."""
    hours = [(time - timeline.submit_seconds) / 3600 for time in timeline.times_seconds]
    axes.step(hours, timeline.workers, where="post", color=CLUSTER_COLOURS[0], linewidth=2.8, label="workers")
    axes.step(hours, timeline.ps, where="post", color=CLUSTER_COLOURS[1], linewidth=1.5, label="parameter servers")
    axes.set_xlim(left=0.0)
    axes.set_ylim(0, max(*timeline.workers, *timeline.ps, 1) * 1.15)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("time since submission [h]")
    axes.set_ylabel("tasks")
    axes.set_title(finding(timeline))
    axes.legend(fontsize=8.5)

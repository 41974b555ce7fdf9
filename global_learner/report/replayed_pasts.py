"""Pasts of real clusters as their agents replayed them: which are believed, and what is said of each.

A replay under the policy that really acted shows how far the others are to be trusted. Where it is far from the record,
in the jobs' times or in the GPUs that they held, no other scheduler is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foundation.figures import counted
from global_learner.report.load import Series
from global_learner.report.words import change, is_same, listed, moment
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.wire import MOST_TIMES_OFF, times_off

AS_IT_RAN = ""
TWIN = "twin"
"""No scheduler's name: what really acted, in a replay."""
_NEWEST_SECONDS = 172_800.0
"""Days that ended longer ago on the cluster's clock are not shown."""
_SHORTEST_SECONDS = 1.0
"""Of a shorter average completion time no ratio is taken."""
_LEAST_SHARE = 0.05
"""Of the GPUs; a difference below it counts as none, however few are in use."""


@dataclass(frozen=True, slots=True)
class ReportedPast:
    """One cluster's, as it was reported.

    Attributes:
        since_seconds: when the days began; Unix seconds.
        jobs: that ended in them.
        seconds: scheduler to their average completion time: as it ran, in the twin, and under others.
        series: the twin's load and those of others; empty where they are not believed.
        used_times_off: the twin's GPUs in use over the real ones, or their inverse, 1 and more; 1 where not known.
        holds_fewer: whether the twin has fewer in use.
    """

    since_seconds: float
    jobs: int
    seconds: Mapping[str, float]
    series: Mapping[str, Series]
    used_times_off: float = 1.0
    holds_fewer: bool = False

    @property
    def is_believed(self) -> bool:
        """Whether the twin is near enough to what happened."""
        off = times_off(self.seconds[TWIN], self.seconds[AS_IT_RAN])
        return off <= MOST_TIMES_OFF and self.used_times_off <= MOST_TIMES_OFF


def replayed_past(view: fleet_pb2.ClusterView, ran: Series | None = None) -> ReportedPast | None:
    """Replays of its past that a real cluster reported; None without any, or of days long ago.

    Args:
        ran: its load as it ran, where that is known.
    """
    if not view.status.HasField("replayed"):
        return None
    reported = view.status.replayed
    seconds = {AS_IT_RAN: reported.avg_jct_seconds, TWIN: reported.twin_jct_seconds}
    seconds |= {baseline.policy: baseline.avg_jct_seconds for baseline in reported.baselines}
    if not reported.jobs or min(seconds.values()) < _SHORTEST_SECONDS:
        return None
    if view.status.time_seconds - reported.end_seconds > _NEWEST_SECONDS:
        return None
    curves = {curve.policy or TWIN: Series(curve) for curve in reported.load if len(curve.gpus)}
    said, really, there = (0.0, 0.0, 0.0) if ran is None or TWIN not in curves else _used(curves[TWIN], ran)
    off = 1.0
    if abs(said - really) > _LEAST_SHARE * there:
        off = times_off(said, really) if min(said, really) > 0.0 else math.inf
    past = ReportedPast(reported.begin_seconds, reported.jobs, seconds, {}, off, said < really)
    known = {policy: series for policy, series in curves.items() if policy in seconds}
    return replace(past, series=known) if past.is_believed else past


def believed_past(view: fleet_pb2.ClusterView) -> ReportedPast | None:
    """The same where it is believed, and has other schedulers."""
    ran = next((Series(curve) for curve in view.status.load if curve.policy == AS_IT_RAN and len(curve.gpus)), None)
    past = replayed_past(view, ran)
    return past if past is not None and past.is_believed and len(past.seconds) > 2 else None


def within(pasts: Sequence[ReportedPast]) -> str:
    """Distance of these replays from the jobs' real times over all jobs, as in `within 4% of`."""
    twin, ran = (math.fsum(past.jobs * past.seconds[key] for past in pasts) for key in (TWIN, AS_IT_RAN))
    return f"within {math.ceil(round(100.0 * abs(twin / ran - 1.0), 6)) or 1}% of"


def _used(twin: Series, ran: Series) -> tuple[float, float, float]:
    """Sums of GPUs in use in the twin, really in use, and there, over the moments at which all are known."""
    said, really, there = 0.0, 0.0, 0.0
    for index in range(len(twin.reported.gpus)):
        middle = twin.reported.begin_seconds + (index + 0.5) * twin.reported.step_seconds
        simulated, seen = twin.at(middle), ran.at(middle)
        if simulated is not None and seen is not None and simulated[0] is not None and seen[0] is not None:
            said, really, there = said + simulated[0], really + seen[0], there + seen[2]
    return said, really, there


def said_of_replays(pasts: Sequence[tuple[str, ReportedPast | None]]) -> str:
    """Whole sentences: how far the lines of other schedulers are to be trusted, or why there are none.

    Args:
        pasts: by name, of each cluster that is shown together; at least one.
    """
    known = [past for _, past in pasts if past is not None]
    lacking = [name for name, past in pasts if past is None or not past.series]
    if not lacking:
        return _worth(known)
    if len(pasts) > 1:
        return (
            f"Other schedulers are shown where replays of every cluster are believed, and not those of"
            f" {listed(lacking, 4)}; choose a cluster to see its own."
        )
    return _not_believed(known[0]) if known else _NOT_REPORTED


_NOT_REPORTED = (
    "Other schedulers are shown once 20 jobs have ended here and the agent has replayed them. Older agents, and agents"
    " without learner.tell_baselines, report none."
)


def _worth(pasts: Sequence[ReportedPast]) -> str:
    jobs = sum(past.jobs for past in pasts)
    twin, ran = (math.fsum(past.jobs * past.seconds[key] for past in pasts) for key in (TWIN, AS_IT_RAN))
    whose = "the agent's decision log" if len(pasts) == 1 else "each agent's decision log"
    return (
        f"Simulated lines are replays of {whose} on its usual machines. As a check, the policy that really acted is"
        f" replayed too: the {counted(jobs, 'job')} that ended since"
        f" {moment(min(past.since_seconds for past in pasts))} take {_off(twin / ran)} there than they took. Compare"
        " simulated lines with each other; a difference no larger than that says nothing."
    )


def _not_believed(past: ReportedPast) -> str:
    ratio = past.seconds[TWIN] / past.seconds[AS_IT_RAN]
    jobs = f"the {counted(past.jobs, 'job')} that ended since {moment(past.since_seconds)}"
    if past.used_times_off > MOST_TIMES_OFF:
        how = f"hold more than a quarter {'fewer' if past.holds_fewer else 'more'} GPUs than they did"
        why = (
            " Jobs that still run and never said how much work they are cannot be replayed." if past.holds_fewer else ""
        )
    else:
        how, why = f"take {_off(ratio)} than they took", ""
    return (
        f"No other scheduler is shown: replayed under the policy that really acted, {jobs} {how}. A simulation so far"
        f" from the record says nothing of other schedulers.{why}"
    )


def _off(ratio: float) -> str:
    return "no more and no less time" if is_same(ratio) else change(ratio)

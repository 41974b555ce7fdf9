"""Load as clusters report it in their heartbeats: each by itself, and those added up that share a time.

Real clusters share the time of day; simulated ones are added up from the beginning of their work. The two are never
added. Agents keep their own history, so it is there again within a heartbeat after a restart of the learner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from global_learner.report.load import Amount, LoadScope, SchedulerLoad, Series
from global_learner.report.replayed_pasts import AS_IT_RAN, TWIN, ReportedPast, replayed_past, said_of_replays
from global_learner.report.savings import RECORDED, USUAL, USUAL_LABEL, is_simulated
from global_learner.report.words import listed, policy_label
from policy_net.exchange.generated import fleet_pb2

MOMENTS = 120
"""Points of a curve: more than a page can show apart."""
MOST_CLUSTERS = 64
"""Clusters that can be chosen; a page of so many is 250 kB."""
LONGEST_SECONDS = 8 * 86_400.0
"""Of real time: agents keep a week."""
_AHEAD_SECONDS = 3600.0
"""A cluster's clock may be ahead by so much."""
_LABELS = {
    AS_IT_RAN: "as it ran",
    TWIN: "as it ran, simulated",
    USUAL: USUAL_LABEL,
    RECORDED: "your own, as recorded",
}
_ORDER = (RECORDED, USUAL)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """One cluster's load: scheduler to curve, always with AS_IT_RAN; other schedulers of a real one are of `past`."""

    name: str
    simulated: bool
    fallback: str
    series: Mapping[str, Series]
    past: ReportedPast | None = None

    @property
    def begin(self) -> float:
        return self.series[AS_IT_RAN].reported.begin_seconds

    @property
    def gpus(self) -> float:
        return max(self.series[AS_IT_RAN].reported.gpus)

    @property
    def end(self) -> float:
        """End of what can be compared."""
        ran = self.series[AS_IT_RAN]
        return max(series.nearly_end for series in self.series.values()) if ran.reported.ended else ran.end


def reported_load(views: Sequence[fleet_pb2.ClusterView], now: float) -> list[LoadScope]:
    """A scope for several real clusters, one for several simulated ones, then one for each; `now` in Unix seconds."""
    reported = filter(None, map(_reported, views))
    clusters = sorted(
        (one for one in reported if one.simulated or one.begin < now + _AHEAD_SECONDS), key=lambda one: one.name
    )
    if not clusters:
        return []
    silent = sorted(
        view.cluster
        for view in views
        if view.HasField("status") and view.identity != "revoked" and not view.status.load
    )
    scopes: list[LoadScope] = []
    for simulated in (False, True):
        group = [cluster for cluster in clusters if cluster.simulated is simulated]
        if len(group) > 1:
            kind = "simulated" if simulated else "real"
            name = f"all {len(group)} {kind} clusters" if len(group) < len(clusters) else f"all {len(group)} clusters"
            scopes.append(_scope(name, group, now, silent))
    largest = sorted(clusters, key=lambda cluster: -cluster.gpus)[:MOST_CLUSTERS]
    shown = [cluster for cluster in clusters if cluster in largest]
    return [*scopes, *(_scope(cluster.name, [cluster], now, silent if len(clusters) == 1 else ()) for cluster in shown)]


def _reported(view: fleet_pb2.ClusterView) -> _Cluster | None:
    series = {curve.policy: Series(curve) for curve in view.status.load if len(curve.gpus)}
    if AS_IT_RAN not in series:
        return None
    if is_simulated(view.status):
        return _Cluster(view.cluster, True, view.status.baseline_policy, series)
    ran = series[AS_IT_RAN]
    past = replayed_past(view, ran)
    return _Cluster(view.cluster, False, "", {AS_IT_RAN: ran, **({} if past is None else past.series)}, past)


def _scope(name: str, group: Sequence[_Cluster], now: float, silent: Sequence[str]) -> LoadScope:
    real = not group[0].simulated
    begin = min(cluster.series[AS_IT_RAN].reported.begin_seconds for cluster in group)
    end = max(cluster.end for cluster in group)
    if real:
        end = min(end, now + _AHEAD_SECONDS)
        begin = max(begin, end - LONGEST_SECONDS)
    step = max(end - begin, 0.0) / MOMENTS
    moments = [begin + (index + 0.5) * step for index in range(MOMENTS)]
    policies = [policy for policy in _ordered(group) if all(policy in cluster.series for cluster in group)]
    gpus: list[float] = []
    columns: dict[str, tuple[list[Amount], list[Amount]]] = {policy: ([], []) for policy in policies}
    for moment in moments:
        known = [found for cluster in group if (found := _at(cluster, policies, moment)) is not None]
        gpus.append(sum(found[AS_IT_RAN][2] for found in known))
        for policy, (used, waiting) in columns.items():
            amounts = [found[policy] for found in known]
            used.append(_sum([amount[0] for amount in amounts]))
            waiting.append(_sum([amount[1] for amount in amounts]))
    labels = {policy: _label(policy, group) for policy in policies}
    return LoadScope(
        name=name,
        seconds=moments,
        gpus=gpus,
        curves=[SchedulerLoad(labels[policy], *columns[policy], of_own=policy == TWIN) for policy in policies],
        axis="time, UTC" if real else "simulated time",
        note=_note(group, policies, silent),
        real=real,
        times=_times(group, labels) if real else (),
    )


def _times(group: Sequence[_Cluster], labels: Mapping[str, str]) -> list[tuple[str, float]]:
    """Average completion times in the replays, under each scheduler that is shown; every job counts the same."""
    pasts = [cluster.past for cluster in group if cluster.past is not None]
    if len(pasts) < len(group) or len(labels) == 1:
        return []
    jobs = sum(past.jobs for past in pasts)
    return [
        (label, math.fsum(past.jobs * past.seconds[policy] for past in pasts) / jobs)
        for policy, label in labels.items()
    ]


def _at(cluster: _Cluster, policies: Sequence[str], moment: float) -> dict[str, tuple[Amount, Amount, float]] | None:
    """One cluster under each of these schedulers; None unless all are known, so that sums are of the same clusters.

    Of a real cluster, other schedulers are known up to its latest replay.
    """
    found = {policy: cluster.series[policy].at(moment) for policy in policies}
    ran = found[AS_IT_RAN]
    if ran is None or (cluster.simulated and None in found.values()):
        return None
    if cluster.simulated:
        return {policy: amounts for policy, amounts in found.items() if amounts is not None}
    return {policy: _within(amounts, ran[2]) for policy, amounts in found.items()}


def _within(amounts: tuple[Amount, Amount, float] | None, gpus: float) -> tuple[Amount, Amount, float]:
    """Amounts of a replay, which has the usual GPUs all the time, bounded by those that there really were."""
    if amounts is None:
        return None, None, gpus
    used, waiting, _ = amounts
    return None if used is None else min(used, gpus), waiting, gpus


def _sum(amounts: Sequence[Amount]) -> Amount:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def _ordered(group: Sequence[_Cluster]) -> list[str]:
    """Schedulers that an operator has or could have first, the clusters' own last."""
    every = {policy for cluster in group for policy in cluster.series}
    others = sorted(every - {*_ORDER, TWIN, AS_IT_RAN})
    first = [policy for policy in _ORDER if policy in every]
    return [*first, *others, *([TWIN] if TWIN in every else []), AS_IT_RAN]


def _label(policy: str, group: Sequence[_Cluster]) -> str:
    simulated = "" if group[0].simulated or policy in (TWIN, AS_IT_RAN) else ", simulated"
    if policy in _LABELS:
        return _LABELS[policy] + simulated
    fallback = all(cluster.fallback == policy for cluster in group) or bool(simulated)
    return f"{policy_label(policy)}{', the fallback' if fallback else ''}{simulated}"


def _note(group: Sequence[_Cluster], policies: Sequence[str], silent: Sequence[str]) -> str:
    if group[0].simulated:
        ended = all(cluster.series[AS_IT_RAN].reported.ended for cluster in group)
        run = "the latest whole run through their work" if ended else "the present run through their work"
        others = [_label(policy, group) for policy in policies if policy != AS_IT_RAN]
        note = f"Simulated, of {run if len(group) > 1 else run.replace('their', 'its')}."
        if others:
            note += f" {listed(others, 4)}: the same jobs on the same machines."
        note += " Jobs that end sooner hold fewer GPUs at once."
    else:
        seen = "As the agents saw it, whose" if len(group) > 1 else "As the agent saw it, whose"
        starts = "their first start" if len(group) > 1 else "its first start"
        worth = said_of_replays([(cluster.name, cluster.past) for cluster in group])
        note = f"{seen} history begins with {starts}. {worth}"
    if silent:
        note += f" Not reported by {listed(list(silent), 4)}: older agents, or agents set not to report it."
    return note

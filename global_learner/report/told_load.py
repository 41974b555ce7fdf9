"""Load as clusters tell it in their heartbeats: each by itself, and those added up whose time is one.

Real clusters share the time of day. Simulated ones are added up from the beginning of their work; each then runs
through it at its own pace. The two are never added. Agents keep their own history, so that it is there again within a
heartbeat after the learner was restarted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from global_learner.report.load import Amount, LoadCurve, LoadScope
from global_learner.report.savings import RECORDED, USUAL, is_simulated
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
AS_IT_RAN = ""
_LABELS = {AS_IT_RAN: "as it ran", USUAL: "FIFO with EASY backfill", RECORDED: "your own, as recorded"}
_ORDER = (RECORDED, USUAL)
_HOW_TO_KNOW = (
    " What another scheduler would have made of these jobs is not known of real clusters; policy-net replay says it of"
    " their decision logs."
)


@dataclass(frozen=True, slots=True)
class _Series:
    """One curve as it was told."""

    told: fleet_pb2.LoadCurve

    @property
    def end(self) -> float:
        return self.told.begin_seconds + len(self.told.gpus) * self.told.step_seconds

    @property
    def nearly_end(self) -> float:
        """Until when a run that ended is shown: the last job may run alone for days, which says little."""
        return min(self.told.nearly_done_seconds or self.end, self.end)

    def at(self, seconds: float) -> tuple[Amount, Amount, float] | None:
        """GPUs in use, jobs that wait, GPUs; None where nothing is known."""
        steps = (seconds - self.told.begin_seconds) / self.told.step_seconds
        if steps < 0.0 or (steps >= len(self.told.gpus) and not self.told.ended):
            return None
        if steps >= len(self.told.gpus):
            return 0.0, 0.0, max(self.told.gpus[-1], 0.0)
        index = math.floor(steps)
        used, waiting, gpus = (
            values[index] for values in (self.told.gpus_used, self.told.jobs_waiting, self.told.gpus)
        )
        return None if waiting < 0.0 else (None if used < 0.0 else used, waiting, max(gpus, 0.0))


@dataclass(frozen=True, slots=True)
class _Cluster:
    """One cluster that tells its load: scheduler to curve; as it ran is always there."""

    name: str
    simulated: bool
    fallback: str
    series: Mapping[str, _Series]

    @property
    def begin(self) -> float:
        return self.series[AS_IT_RAN].told.begin_seconds

    @property
    def gpus(self) -> float:
        return max(self.series[AS_IT_RAN].told.gpus)

    @property
    def end(self) -> float:
        """Until when there is something to compare."""
        ran = self.series[AS_IT_RAN]
        return max(series.nearly_end for series in self.series.values()) if ran.told.ended else ran.end


def told_load(views: Sequence[fleet_pb2.ClusterView], now: float) -> list[LoadScope]:
    """A scope for all real clusters and one for all simulated ones, where there are several, then one for each.

    Args:
        now: Unix seconds.
    """
    told = filter(None, map(_told, views))
    clusters = sorted(
        (one for one in told if one.simulated or one.begin < now + _AHEAD_SECONDS), key=lambda one: one.name
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


def _told(view: fleet_pb2.ClusterView) -> _Cluster | None:
    series = {curve.policy: _Series(curve) for curve in view.status.load if len(curve.gpus)}
    if AS_IT_RAN not in series:
        return None
    return _Cluster(view.cluster, is_simulated(view.status), view.status.baseline_policy, series)


def _scope(name: str, group: Sequence[_Cluster], now: float, silent: Sequence[str]) -> LoadScope:
    real = not group[0].simulated
    begin = min(cluster.series[AS_IT_RAN].told.begin_seconds for cluster in group)
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
        curves=[LoadCurve(labels[policy], *columns[policy]) for policy in policies],
        axis="time, UTC" if real else "simulated time",
        note=_note(group, policies, silent),
        real=real,
    )


def _at(cluster: _Cluster, policies: Sequence[str], moment: float) -> dict[str, tuple[Amount, Amount, float]] | None:
    """One cluster under each of these schedulers; None unless all are known, so that all are of the same clusters."""
    found = {policy: cluster.series[policy].at(moment) for policy in policies}
    known = {policy: amounts for policy, amounts in found.items() if amounts is not None}
    return known if len(known) == len(found) else None


def _sum(amounts: Sequence[Amount]) -> Amount:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def _ordered(group: Sequence[_Cluster]) -> list[str]:
    """What an operator has or could have first, as the clusters ran last."""
    every = {policy for cluster in group for policy in cluster.series}
    others = sorted(every - {*_ORDER, AS_IT_RAN})
    return [*(policy for policy in _ORDER if policy in every), *others, AS_IT_RAN]


def _label(policy: str, group: Sequence[_Cluster]) -> str:
    if policy in _LABELS:
        return _LABELS[policy]
    fallback = all(cluster.fallback == policy for cluster in group)
    return f"{policy_label(policy)}, the fallback" if fallback else policy_label(policy)


def _note(group: Sequence[_Cluster], policies: Sequence[str], silent: Sequence[str]) -> str:
    if group[0].simulated:
        run = "the latest whole run through their work" if _all_ended(group) else "the present run through their work"
        others = [_label(policy, group) for policy in policies if policy != AS_IT_RAN]
        note = f"Simulated, of {run if len(group) > 1 else run.replace('their', 'its')}."
        if others:
            note += f" {listed(others, 4)}: the same jobs on the same machines."
        note += " Jobs that end sooner hold fewer GPUs at once."
    else:
        note = "As the agents saw it, whose history begins with their first start." + _HOW_TO_KNOW
    if silent:
        note += f" Not told by {listed(list(silent), 4)}, whose agents are older than this, or are not to tell it."
    return note


def _all_ended(group: Sequence[_Cluster]) -> bool:
    return all(cluster.series[AS_IT_RAN].told.ended for cluster in group)

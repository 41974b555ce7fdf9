"""Explanation of a target or TrainingJob of a Kubernetes cluster: read with its user's rights, and shown to people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from rich.console import Group

from cluster_agent.backends.kubernetes.explanation import explain
from cluster_agent.backends.kubernetes.views import ClusterView, events_of, poll
from cluster_agent.errors import JobRefused
from cluster_agent.jobs.cluster_access import Cluster, check_in_scope
from cluster_agent.jobs.views import decision_rows
from cluster_agent.kubernetes.errors import Forbidden
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS
from foundation.figures import percent
from foundation.tables import Column, FactSheet, FittedTable
from foundation.text import nearest, plain_line

CRD = "deploy/crds/elastictargets.yaml"
TRAINING = "trainingjob"


def explain_target(cluster: Cluster, name: str) -> dict[str, Any]:
    """Explanation of a target or TrainingJob, named namespace/name or namespace/trainingjob/name.

    Raises:
        JobRefused: there is none of that name, or the cluster knows no such objects.
        ApiError: the cluster cannot be read.
    """
    namespace, slash, short = name.partition("/")
    if not (slash and namespace and short):
        raise JobRefused(f"{name}: on a cluster a target is named NAMESPACE/NAME")
    what, _, of_training = short.partition("/")
    if of_training and what == TRAINING and not cluster.trains:
        raise JobRefused(f"{name}: the agent looks after no TrainingJobs; its configuration has no backend.training")
    check_in_scope(cluster, namespace)
    view = poll(cluster.api, namespace, time.time(), cluster.settings, trains=cluster.trains)
    if of_training and what == TRAINING:
        uids = [_training_uid(view, namespace, name)]
    elif not view.serves_targets:
        raise JobRefused(f"{cluster.api.address} serves no ElasticTargets: apply {CRD}")
    elif (target := view.targets.get(name)) is None:
        raise _nobody(f"no ElasticTarget {name}", name, [*view.targets, *view.training_jobs])
    else:
        found = view.seen.found.get((target.ref.kind, namespace, target.ref.name))
        uids = [target.uid, *([] if found is None else [found.uid])]
    answer = explain(view, name, cluster.state_dir, cluster.policy)
    try:
        return answer | {"events": events_of(cluster.api, namespace, uids)}
    except Forbidden:
        return answer | {"events": [], "notes": [*answer["notes"], f"you may not read events in {namespace}"]}


def _training_uid(view: ClusterView, namespace: str, name: str) -> str:
    job = view.training_jobs.get(name)
    if job is not None:
        return job.uid
    if TRAINING_JOBS.plural in view.unseen:
        raise JobRefused(f"{name}: you may not read TrainingJobs in {namespace}; ask for the right to")
    raise _nobody(f"no TrainingJob {name}", name, [*view.training_jobs, *view.targets])


def _nobody(line: str, name: str, known: list[str]) -> JobRefused:
    meant = nearest(name, known)
    return JobRefused(line + (f"; did you mean {meant}?" if meant else ""))


def explained(facts: dict[str, Any], now_unix_seconds: float) -> Group:
    """The answer for people; lines fold where a terminal is narrow."""
    decision = facts["decision"]
    decided = () if decision is None else decision_rows(decision, _size(decision), now_unix_seconds)
    rows = [*_rows(facts), *decided]
    parts: list[Any] = [FactSheet("", rows)]
    if facts["gains"]:
        head = plain_line(f"What more workers are believed to gain, by {facts['speedsFrom']}:")
        parts += ["", head, _gains(facts)]
    if facts["others"]:
        parts += ["", "Others were given: " + ", ".join(f"{row['name']} {row['workers']}" for row in facts["others"])]
    if facts["events"]:
        parts += ["", "Events:", *(plain_line(_event(event)) for event in facts["events"])]
    notes = [plain_line(note) for note in facts["notes"]]
    return Group(*parts, *(["", *notes] if notes else []))


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    job, progress = facts["job"], facts["progress"]
    if job["kind"] != TRAINING_JOBS.kind:
        yield "target", facts["name"]
    yield "job", f"{job['kind']} {job['name']}, {facts['modelType']}"
    yield "state", facts["state"]
    yield "has", _size(facts)
    servers = f" and {facts['minPs']}–{facts['maxPs']} PS" if facts.get("maxPs") else ""
    yield "may have", f"{facts['min']}–{facts['max']} workers{servers}, updateMode {facts['updateMode']}"
    if progress is not None:
        share = "" if progress["share"] is None else f", {percent(progress['share'])} of {progress['total']:,.0f}"
        yield "progress", f"{progress['samples']:,.0f} samples{share}"
    advice = facts["recommendation"]
    if isinstance(advice, dict):
        yield "advice", f"{_size(advice)}: {advice.get('message', '')} ({advice.get('time', '')})"
    else:
        yield "advice", "none yet"
    made = facts["allocation"]
    if isinstance(made, dict):
        who = f"by {made.get('policyVersion', 'an agent')}, decision {made.get('decisionId', '–')}"
        yield "set", f"{_size(made)} {who}: {made.get('reason', '')} ({made.get('time', '')})"
    for each in facts["conditions"]:
        yield plain_line(each["type"].lower(), 20), f"{each['status']}, {each['reason']}: {each['message']}"
    yield "waits for", facts["waitsFor"] or "nothing: it has what was decided"


def _gains(facts: dict[str, Any]) -> FittedTable:
    servers = any(row.get("ps") for row in facts["gains"])
    columns = [
        Column("workers"),
        *([Column("PSs")] if servers else []),
        Column("samples/s", 1),
        Column("times now"),
        Column("score", 2),
        Column("after", 3),
        Column("which is", text=True),
    ]
    advised = None if facts["decision"] is None else _pair(facts["decision"])
    rows = []
    for row in facts["gains"]:
        step, speed, times = row["step"], row["samplesPerSecond"], row["timesAsFastAsNow"]
        marks = ["now"] if _pair(row) == _pair(facts) else []
        marks += ["advised"] if _pair(row) == advised else []
        marks += ["no room"] if step is not None and not step["taken"] else []
        rows.append(
            (
                str(row["workers"]),
                *([str(row["ps"])] if servers else []),
                "–" if speed is None else f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}",
                "–" if times is None else f"{times:.2f}",
                "" if step is None else f"{step['score']:.3g}",
                "" if step is None else str(step["rank"]),
                ", ".join(marks),
            )
        )
    return FittedTable("", columns, rows)


def _event(event: dict[str, Any]) -> str:
    times = f" ({event['count']} times)" if event["count"] > 1 else ""
    return f"{event['time'][:19]}  {event['of']} {event['reason']}: {event['message']}{times}"


def _pair(sizes: dict[str, Any]) -> tuple[Any, Any]:
    return sizes["workers"], sizes.get("ps") or 0


def _size(sizes: dict[str, Any]) -> str:
    servers = f" and {sizes['ps']} PS" if sizes.get("ps") else ""
    return _workers(sizes.get("workers")) + servers


def _workers(number: Any) -> str:
    return "nothing" if not number else f"{number} worker" + "s" * (number != 1)

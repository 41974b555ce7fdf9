"""View of a cluster as it is now, for users' commands: read once, with whatever rights their user has.

What may not be read is left out and said: whoever may see one namespace only still learns of their own jobs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster_agent.backend_settings import KubernetesBackendSettings
from cluster_agent.backends.kubernetes.cluster_watch import facts_of, meant_by_free, namespaces_of, selector_of
from cluster_agent.backends.kubernetes.observation import Observed, SeenCluster, observed
from cluster_agent.backends.kubernetes.training.free_capacity import choices_of
from cluster_agent.backends.kubernetes.training.measured import (
    Demand,
    Usual,
    noted,
    scheduled_jobs,
    unended,
    usual_of,
)
from cluster_agent.kubernetes.api_server import ApiServer, Query
from cluster_agent.kubernetes.capacity import NodeChoice, NodeFacts, pod_facts
from cluster_agent.kubernetes.device_claims import (
    GROUP,
    claim_facts,
    claims,
    less_taken,
    served_version,
    slice_facts,
    slices,
    taken_devices,
)
from cluster_agent.kubernetes.errors import Expired, Forbidden, NotFound
from cluster_agent.kubernetes.resources import EVENTS, JOBS, NODES, PODS, Json, Resource, dicts_in
from cluster_agent.kubernetes.targets import ELASTIC_TARGETS, ElasticTarget, elastic_target, job_facts
from cluster_agent.kubernetes.training.pod_rights import NO_RIGHTS, Rights
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, TrainingJob, training_job
from policy_net.domain import Job

_PAGE_OBJECTS = 500
_TRIES = 3
"""Of a list whose pages are no longer kept before it is read to its end."""
_MOST_EVENTS = 10


class StandingJobs:
    """TrainingJobs by their status, for whoever is not their agent and may not ask their coordinators."""

    def __init__(self, jobs: Iterable[TrainingJob]) -> None:
        self._unended = unended(jobs)
        self._measured = {job.uid: noted(job) for job in self._unended}
        self._usual = usual_of((job.model_type, self._measured[job.uid]) for job in self._unended)

    def choices(self) -> dict[str, tuple[str, dict[str, NodeChoice]]]:
        """See `OwnJobs`."""
        return {job.uid: (job.job_id, choices_of(job)) for job in self._unended}

    def usual(self, model_type: str) -> Usual:
        """An epoch of a type, as far as its jobs have said it."""
        return self._usual.get(model_type, Usual())

    def observe(self, demand: Demand) -> list[Job]:
        """See `OwnJobs`."""
        found = scheduled_jobs(
            self._unended, demand, lambda job: self._measured[job.uid], lambda _: None, _agents_problem, self._usual
        )
        return [seen for _, seen in found.values()]


def _agents_problem(job: TrainingJob) -> str:
    """What an agent has found against a job, such as in a dry run of its templates."""
    accepted = job.condition("Accepted")
    return str(accepted.get("message") or "it is not accepted") if accepted.get("status") == "False" else ""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster at one moment.

    Attributes:
        serves_targets: whether the CRD is installed.
        unseen: the plurals of what this user may not read everywhere, or in all of the agent's namespaces.
        meaning_of_free: what is meant where only some nodes and pods are read; else empty.
        training_jobs: by id; those that count for decisions.
        own: the same, as a decision is about them.
        rights: what templates of TrainingJobs may ask for.
    """

    seen: SeenCluster
    observed: Observed
    targets: dict[str, ElasticTarget]
    unix_seconds: float
    serves_targets: bool
    unseen: tuple[str, ...]
    meaning_of_free: str = ""
    training_jobs: Mapping[str, TrainingJob] = field(default_factory=dict)
    own: StandingJobs | None = None
    rights: Rights = NO_RIGHTS

    @property
    def sees_free_capacity(self) -> bool:
        """Whether it is known what is free."""
        return not {"nodes", "pods"} & set(self.unseen)


def poll(
    api: ApiServer,
    namespace: str,
    unix_seconds: float,
    settings: KubernetesBackendSettings,
    *,
    trains: bool = False,
) -> ClusterView:
    """Read a cluster as the agent with these settings sees it.

    Args:
        namespace: whose targets and jobs, where the user may not read those of all; may be empty.
        trains: whether it decides about TrainingJobs, where there are any.

    Raises:
        ApiError: the server does not answer, or lets nothing be read.
    """
    unseen: list[str] = []
    some_nodes, names = settings.own_nodes, namespaces_of(settings)

    def read(resource: Resource, query: Query | None = None) -> list[Json]:
        try:
            return listed(api, resource, query=query)
        except Forbidden:
            if resource.namespaced and not namespace:
                raise
        unseen.append(resource.plural)
        return listed(api, resource, namespace) if resource.namespaced else []

    def read_in(resource: Resource) -> list[Json]:
        """Of the agent's namespaces; of these what this user may read."""
        if names == ("",):
            return read(resource)
        found: list[Json] = []
        for name in names:
            try:
                found += listed(api, resource, name)
            except Forbidden:
                if name == namespace:
                    raise
                unseen.append(resource.plural)
        return found

    serves_targets = True
    try:
        targets = [elastic_target(each) for each in read_in(ELASTIC_TARGETS)]
    except NotFound:
        targets, serves_targets = [], False
    training: list[TrainingJob] = []
    rights = NO_RIGHTS
    if settings.training is not None:
        rights = Rights(settings.training.rights, {settings.lease_namespace}, settings.training.refuse_unlisted)
    if trains:
        try:
            training = [rights.judged(training_job(each)) for each in read_in(TRAINING_JOBS)]
        except NotFound:
            pass  # this cluster has none
        except Forbidden:
            unseen.append(TRAINING_JOBS.plural)
    pods = [pod_facts(each) for each in (read(PODS) if some_nodes is None else read_in(PODS))]
    found = {
        (JOBS.kind, str(each["metadata"].get("namespace")), str(each["metadata"]["name"])): job_facts(each)
        for each in read_in(JOBS)
    }
    nodes = sorted(
        (facts_of(each, some_nodes) for each in read(NODES, selector_of(some_nodes))), key=lambda node: node.name
    )
    if some_nodes is None:
        with contextlib.suppress(Forbidden):  # a user of one namespace: `unseen` says so
            nodes = _less_claimed(api, nodes, read)
    seen = SeenCluster(nodes, [each for each in pods if each is not None], targets, found)
    own = StandingJobs(training) if training else None
    return ClusterView(
        seen,
        observed(seen, unix_seconds, settings.slot_seconds, own=own),
        {target.job_id: target for target in targets},
        unix_seconds,
        serves_targets,
        tuple(dict.fromkeys(unseen)),
        meant_by_free(some_nodes, names),
        {job.job_id: job for job in training},
        own,
        rights,
    )


def _less_claimed(api: ApiServer, nodes: list[NodeFacts], read: Callable[[Resource], list[Json]]) -> list[NodeFacts]:
    try:
        version = served_version(api.get(f"/apis/{GROUP}"))
    except (NotFound, Forbidden):
        return nodes
    if not version:
        return nodes
    claimed = [facts for each in read(claims(version)) if (facts := claim_facts(each)) is not None]
    places = [slice_facts(each) for each in read(slices(version))] if claimed else []
    offered = [each for each in places if each is not None]
    return less_taken(nodes, taken_devices(claimed, offered))


def listed(api: ApiServer, resource: Resource, namespace: str = "", query: Query | None = None) -> list[Json]:
    """All objects of a kind, page by page.

    Raises:
        ApiError: they cannot be read.
    """
    path = resource.path(namespace)

    def get(more: Query) -> Json:
        return api.get(path, {**(query or {}), "limit": _PAGE_OBJECTS, **more})

    for _ in range(_TRIES - 1):
        with contextlib.suppress(Expired):
            return _pages(get)
    return _pages(get)


def _pages(get: Callable[[Query], Json]) -> list[Json]:
    found: list[Json] = []
    more: Query = {}
    while True:
        page = get(more)
        found += dicts_in(page.get("items"))
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return found
        more = {"continue": str(token)}


def events_of(api: ApiServer, namespace: str, uids: Iterable[str]) -> list[dict[str, Any]]:
    """The newest events of objects, oldest first; plain JSON values."""
    found: list[dict[str, Any]] = []
    for uid in uids:
        for each in listed(api, EVENTS, namespace, {"fieldSelector": f"involvedObject.uid={uid}"}):
            series = each.get("series") or {}
            time = series.get("lastObservedTime") or each.get("lastTimestamp") or each.get("eventTime")
            found.append(
                {
                    "time": str(time or each["metadata"].get("creationTimestamp") or ""),
                    "type": str(each.get("type") or ""),
                    "reason": str(each.get("reason") or ""),
                    "message": str(each.get("message") or each.get("note") or ""),
                    "of": str((each.get("involvedObject") or {}).get("kind") or ""),
                    "count": int(series.get("count") or each.get("count") or 1),
                }
            )
    return sorted(found, key=lambda event: str(event["time"]))[-_MOST_EVENTS:]

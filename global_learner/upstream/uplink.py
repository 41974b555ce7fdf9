"""The task of a region that keeps in touch with the learner above: heartbeats, pushes, heads and versions.

One push at a time. It is in the log before it is sent, and is sent under its name until there is an answer, so that the
learner above applies it once, whoever is killed meanwhile. Nothing that goes wrong here reaches the region's clusters:
they teach at the head that is known, and act on what they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import structlog

from foundation.backoff import Backoff
from foundation.refusal_log import RefusalWindows
from foundation.text import plain_line
from global_learner.aggregation.region import Parcel, RegionAggregator
from global_learner.background_task import BackgroundTask
from global_learner.beliefs.priors import PriorsSource
from global_learner.errors import NotNow, Rejection
from global_learner.learner import Learner
from global_learner.registry.registry_thread import RegistryThread
from global_learner.settings import UpstreamSettings
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.telemetry import LearnerTelemetry
from global_learner.upstream.versions_from_above import VersionsFromAbove
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.fleet_client import FleetClient
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.learner_connection import LearnerAddress
from policy_net.exchange.other_server import CallerWords
from policy_net.exchange.signed_documents import UNUSABLE
from policy_net.exchange.spec import Weights
from policy_net.exchange.statistics import SpeedStatistic, most_observed
from policy_net.exchange.wire import Assignment, GradientUpdate, LearnerHead, PushAnswer, PushOutcome, Registration

_log = structlog.get_logger()

_LONGEST_WAIT_SECONDS = 30.0

_WORDS = CallerWords(
    "upstream",
    "learner above",
    "region",
    "set upstream.address to the learner that wrote the enrollment file, or put a new file in its place",
    "name this region's enrollment file in upstream.enrollment_file; `policyctl cluster enroll` there writes it",
    "put an enrollment file of that learner in the place of upstream.enrollment_file",
    "leave out upstream.enrollment_file, or name another address",
)


# Reports of a region to the learner above on the speeds that its clusters told: all of them, merged into one.
#
# A merged report is no larger for a hundred clusters than for one, and counts above as one cluster's. It takes the
# place of the region's last one there, so that nothing is counted twice; its number is the time, as a region keeps its
# registration over restarts and numbers must rise within one. What `beliefs.min_clusters` keeps from versions is kept
# from it too.

EVERY_SECONDS = 60.0
"""As agents do by default: `ShareBeliefs` is bounded to once a minute."""


class BeliefsUpwards:
    """Used by the uplink's task alone."""

    def __init__(
        self,
        priors: PriorsSource,
        registry: RegistryThread,
        client: FleetClient,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._priors = priors
        self._registry = registry
        self._client = client
        self._clock = clock
        self._wall_clock = wall_clock
        self._incarnation = 0
        self._reported: tuple[SpeedStatistic, ...] | None = None
        self._due_seconds = clock()

    async def share(self, registration: Registration) -> None:
        """Tell what there is to tell, if it is time; what was not taken is told again."""
        if registration.incarnation != self._incarnation:
            self._incarnation, self._reported = registration.incarnation, None
        elif self._clock() < self._due_seconds:
            return
        self._due_seconds = self._clock() + EVERY_SECONDS
        statistics = most_observed(await self._registry.call(self._priors.reported))
        if statistics == self._reported or (not statistics and self._reported is None):
            return
        revision = int(1000.0 * self._wall_clock())
        answer = await asyncio.to_thread(self._client.share_beliefs, registration, revision, statistics)
        self._reported = statistics
        _log.info("beliefs-passed-up", statistics=len(statistics), types_left_out=len(answer.left_out))


def update_of(parcel: Parcel, region: str, spec_digest: str, *, only_replays: bool) -> GradientUpdate:
    """A push to the learner above, of a region by its name there; `only_replays` if nothing else is gathered here."""
    return GradientUpdate(
        region,
        parcel.incarnation,
        parcel.sequence,
        parcel.base_step,
        spec_digest,
        parcel.gradient,
        parcel.samples,
        parcel.effective_samples,
        {"updates": float(parcel.updates)},
        only_replays,
    )


def address_above(settings: UpstreamSettings, folder: Path) -> LearnerAddress:
    """The learner above; `folder` is where the identity that it gives is kept."""
    return LearnerAddress(
        (settings.address,),
        settings.name,
        folder,
        _WORDS,
        settings.call_seconds,
        settings.enrollment_file,
        serves=False,  # the region's own clusters are served without
    )


class Uplink:
    """Use on the learner's event loop: `start` it behind the learner, `close` it before.

    Args:
        client: blocks, and is asked in a thread; the region's clusters are served meanwhile.
        only_replays: nothing else than updates from replays is gathered here.

    Attributes:
        heard_seconds: when the learner above last answered a heartbeat, on `clock`; None: never.
        fault: what is wrong with it now, for people; empty: nothing.

    Raises of all methods:
        LearnerUnreachable, LearnerRefused: the learner above does not answer, or says no, or what cannot be.
        NotNow, LogBroken: what it says cannot be kept now, or ever; nothing follows from it.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        learner: Learner,
        registry: RegistryThread,
        client: FleetClient,
        trust: FleetTrust,
        telemetry: LearnerTelemetry,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        *,
        only_replays: bool,
    ) -> None:
        region = learner.region
        if region is None:
            raise ValueError("only a region has a learner above")
        self.heard_seconds: float | None = None
        self.fault = ""
        self._settings = settings
        self._learner = learner
        self._region: RegionAggregator = region
        self._client = client
        self._trust = trust
        self._only_replays = only_replays
        self._telemetry = telemetry
        self._clock = clock
        self._wall_clock = wall_clock
        self.versions = VersionsFromAbove(learner, registry, client, trust, self._pull, wall_clock)
        self._beliefs = BeliefsUpwards(learner.beliefs.priors, registry, client, clock, wall_clock)
        self._backoff = Backoff(settings.name, settings.heartbeat_seconds / 4.0, _LONGEST_WAIT_SECONDS)
        self._refusals: RefusalWindows[str] = RefusalWindows(clock)
        self._incarnation = region.incarnation
        self._fleet = trust.fleet
        self._exchanged_seconds = clock()
        self._task = BackgroundTask("uplink")
        learner.upstream_view = self.view
        telemetry.above_base_step.set_function(lambda: float(region.base_step or 0))
        telemetry.above_open.set_function(lambda: float(region.pending is not None))
        telemetry.above_gathered.set_function(lambda: float(region.waiting))

    def view(self) -> fleet_pb2.UpstreamView:
        """How it is, for people."""
        heard, region = self.heard_seconds, self._region
        return fleet_pb2.UpstreamView(
            address=self._settings.address,
            name=self._settings.name,
            seconds_since_heard=-1.0 if heard is None else self._clock() - heard,
            base_step=region.base_step or 0,
            waiting_updates=region.waiting,
            open_push_updates=0 if region.pending is None else region.pending.updates,
            version_above=self.versions.above,
            fault=plain_line(self.fault),
        )

    def start(self) -> None:
        """Begin."""
        self._task.begin(self._run)

    async def close(self) -> None:
        """End; what is on its way is sent again by the next start."""
        await self._task.close()
        self._client.close()

    async def beat(self) -> None:
        """One heartbeat, and what follows from its answer."""
        if self._incarnation == 0:
            await self._register()
        desired = await self._heartbeat()
        self._check_fleets(desired.fleets)
        # Enrolled anew with another fleet, numbers of registrations are that one's.
        if desired.reregister or self._fleet not in ("", self._trust.fleet):
            await self._register()
            desired = await self._heartbeat()
        self.heard_seconds, self._fleet = self._clock(), self._trust.fleet
        base = self._region.base_step
        if base is None or self._region.incarnation != self._incarnation or desired.head_step < base:
            await self._begin_anew(desired)
        await self._push_what_is_due()
        if desired.head_step != self._region.base_step and self._is_due:
            await self._pull()
        await self.versions.follow(desired.version)
        await self._beliefs.share(self._registered)

    @property
    def _registered(self) -> Registration:
        """What it is registered as, perhaps by an earlier process."""
        return Registration(self._incarnation, self._learner.spec, 0, 0, learning=True)

    async def _heartbeat(self) -> Assignment:
        return await asyncio.to_thread(self._client.beat, self._incarnation, self._status())

    @property
    def _is_due(self) -> bool:
        return self._clock() - self._exchanged_seconds >= self._settings.push_seconds

    async def _register(self) -> None:
        own = self._learner.spec.digest
        registration = await asyncio.to_thread(self._client.register, own, ())
        if registration.spec.digest != own:
            raise LearnerRefused(
                f"the learner above has policies of spec {registration.spec.digest[:12]}, and this region's is "
                f"{own[:12]}: begin it with a policy of the learner above"
            )
        self._check_fleets(registration.fleets)
        if registration.rounds:
            raise LearnerRefused("the learner above works in rounds, which a region cannot take part in")
        self._incarnation, self._fleet = registration.incarnation, self._trust.fleet
        _log.info("region-registered", name=self._settings.name, incarnation=self._incarnation)

    def _check_fleets(self, fleets: tuple[str, ...]) -> None:
        """See that this learner is not above itself."""
        own = self._learner.lineage[:1]
        if own and own[0] in fleets:
            what = "is this learner itself" if fleets[0] == own[0] else "is a region below this one"
            raise LearnerRefused(
                f"the learner above, {self._settings.address}, {what}: a loop; set upstream.address to one that is not"
            )
        self._learner.fleets_above = fleets

    async def _begin_anew(self, desired: Assignment) -> None:
        """Take the head under a new registration, or of a learner above that went back to an older state."""
        region, base = self._region, self._region.base_step
        gives_up = base is None or desired.head_step < base
        if region.pending is not None:
            self._lose(region.pending, "the learner above knows its registration no longer", "unknown")
        if gives_up and base is not None:
            _log.error(
                "learner-above-went-back",
                from_step=base,
                to_step=desired.head_step,
                given_up_updates=region.waiting,
                meaning="what this region pushed since is lost there, and its clusters' gradients are refused",
            )
            self._telemetry.above_updates.labels("lost").inc(region.waiting)
            self._client.follow_back()
        await self._take(await self._head(), gives_up=gives_up)

    async def _push_what_is_due(self) -> None:
        region = self._region
        parcel = region.pending
        if parcel is None and region.gathered and self._is_due:
            # From now on it goes up under this name, and under no other.
            sequence = 1 + (region.sequence if region.incarnation == self._incarnation else 0)
            await self._record(UpdateKind.PASSED_UP, sequence)
            parcel = region.pending
            if parcel is None:
                raise RuntimeError("a push was logged, and there is none")
        if parcel is None:
            return
        spec = self._learner.spec
        update = update_of(parcel, self._settings.name, spec.digest, only_replays=self._only_replays)
        answer = await asyncio.to_thread(self._client.push, update, spec)
        head = _sent("Push", answer.head)
        self._telemetry.above_pushes.labels(answer.outcome).inc()
        if answer.outcome is not PushOutcome.REJECTED:
            self._telemetry.above_updates.labels("passed").inc(parcel.updates)
            _log.info(
                "passed-up",
                sequence=parcel.sequence,
                updates=parcel.updates,
                samples=parcel.samples,
                base_step=parcel.base_step,
                outcome=answer.outcome.value,
                staleness=answer.staleness,
                head_step=head.step,
            )
            await self._take(head, gives_up=False)
        else:
            await self._on_rejected(parcel, answer, head)

    async def _on_rejected(self, parcel: Parcel, answer: PushAnswer, head: LearnerHead) -> None:
        if answer.reason == Rejection.UNKNOWN_INCARNATION:
            self._incarnation = 0
            raise LearnerUnreachable("Push: the learner above knows this registration no longer; registering again")
        if answer.reason == Rejection.QUARANTINED:
            raise LearnerRefused(
                f"the learner above holds this region in quarantine; `policyctl cluster release {self._settings.name}` "
                "there ends it, and what was gathered is kept until then"
            )
        self._lose(parcel, f"the learner above refused it: {answer.reason}", answer.reason)
        await self._take(head, gives_up=answer.reason == Rejection.HEAD_RESET)

    def _lose(self, parcel: Parcel, why: str, reason: str) -> None:
        _log.error(
            "push-lost",
            sequence=parcel.sequence,
            updates=parcel.updates,
            reason=reason,
            meaning=f"{why}; not sent again",
        )
        self._telemetry.above_updates.labels("lost").inc(parcel.updates)

    async def _pull(self) -> int:
        """Go on from the newest head above; the step here."""
        head = await self._head()
        base = self._region.base_step
        return await self._take(head, gives_up=base is None or head.step < base)

    async def _head(self) -> LearnerHead:
        return _sent("PullHead", await asyncio.to_thread(self._client.pull_head, self._registered, None))

    async def _take(self, head: LearnerHead, *, gives_up: bool) -> int:
        """Go on from a head above, which settles the push that is on its way; the step here.

        With `gives_up`, all that was computed at earlier heads is of no use.
        """
        weights = np.array(head.weights, dtype=np.float32)
        step = await self._record(UpdateKind.HEAD_ABOVE, self._region.sequence, head.step, weights, int(gives_up))
        self._exchanged_seconds = self._clock()
        return step

    async def _record(
        self,
        kind: UpdateKind,
        sequence: int,
        base_step: int = 0,
        weights: Weights | None = None,
        samples: int = 0,
    ) -> int:
        """Log and apply what passes between this region and the learner above (see `AppliedUpdate`); the step here."""
        content = np.empty(0, np.float32) if weights is None else weights
        spec_digest = self._learner.spec.digest
        update = GradientUpdate("", self._incarnation, sequence, base_step, spec_digest, content, samples, 0.0)
        (applied,) = await self._learner.maintenance.record(
            lambda step: [AppliedUpdate(step, 0.0, 0, self._wall_clock(), update, kind)]
        )
        return applied.step

    def _status(self) -> fleet_pb2.ClusterStatus:
        """The region's clusters, added up."""
        entries = self._learner.fleet.entries()
        reported = [entry.status for entry in entries if entry.status is not None]
        done = sum(status.jobs_done for status in reported)
        refused, _ = self.versions.refused
        return fleet_pb2.ClusterStatus(
            time_seconds=max((status.time_seconds for status in reported), default=0.0),
            decisions=sum(status.decisions for status in reported),
            jobs_running=sum(status.jobs_running for status in reported),
            jobs_waiting=sum(status.jobs_waiting for status in reported),
            jobs_done=done,
            jobs_total=sum(status.jobs_total for status in reported),
            avg_jct_seconds=sum(status.avg_jct_seconds * status.jobs_done for status in reported) / done
            if done
            else 0.0,
            acting_version=self.versions.above,
            learning_step=self._region.base_step or 0,
            refused_version=refused,
            refused_reason=UNUSABLE if refused else "",
            simulated=any(
                status.simulated for status in reported
            ),  # a sum with simulated jobs in it is of no real work
        )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(await self.attempt())

    async def attempt(self) -> float:
        """One beat; how long to wait for the next."""
        try:
            await self.beat()
        except (LearnerUnreachable, LearnerRefused, NotNow) as error:
            self.fault = str(error)
            line = self._refusals.on_refusal(self.fault)
            if line is not None:
                refused = isinstance(error, LearnerRefused)
                (_log.error if refused else _log.warning)(
                    "learner-above-refused" if refused else "learner-above-lost", error=self.fault, left_out=line[1]
                )
            return self._backoff.next_seconds()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # A fault of ours must not end the way up for good, nor pass unseen.
            self.fault = f"a fault of this program: {error}"
            _log.exception("uplink-failed")
            return self._backoff.next_seconds()
        self.fault = ""
        self._backoff.reset()
        return self._settings.heartbeat_seconds


def _sent(call: str, head: LearnerHead | None) -> LearnerHead:
    if head is None:
        raise LearnerRefused(f"{call}: the learner above sent no head")
    return head

"""Server of the learner: it recovers, listens, serves until it is told to end or cannot go on, and ends tidily."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc
import structlog
from sqlalchemy.exc import SQLAlchemyError

from foundation.files import write_whole
from global_learner.aggregation.settings import AggregationMode
from global_learner.beliefs.belief_store import BeliefStore
from global_learner.beliefs.priors import FleetBeliefs, PriorsSource
from global_learner.enrollment.registrar import Registrar
from global_learner.errors import StateUnusable
from global_learner.identity import CallerIdentity, OperatorIdentity
from global_learner.learner import Learner, Opened
from global_learner.operator_socket import OPERATOR_SOCKET, SocketAddress, socket_name
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.registry.signing import Signing
from global_learner.report.live import LiveReport
from global_learner.scores.scorer import Scorer, SketchReplayer
from global_learner.service.admin_service import AdminService
from global_learner.service.admission import AdmissionLimits, bounded_server
from global_learner.service.config_check import UPSTREAM_FOLDER, CheckedConfig, read_named_files
from global_learner.service.connection_guard import ConnectionGuard
from global_learner.service.fleet_service import FleetService
from global_learner.service.http_server import http_pages
from global_learner.service.identity_setup import (
    Identities,
    follow_secrets,
    keep_administrator,
    open_identities,
    start_enrollment,
)
from global_learner.service.lanes import OPERATOR_SHARE, Lanes, lanes_of, one_lane
from global_learner.service.listener import bind, bind_socket
from global_learner.service.standby import Term, term_of
from global_learner.service.start_check import check_start
from global_learner.settings import LearnerSettings
from global_learner.storage.audit_chain import IDENTITIES, VERSIONS
from global_learner.storage.disk import is_disk_full
from global_learner.storage.state_dir import StateDir
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.quarantine import Quarantine
from global_learner.upstream.uplink import Uplink, address_above
from policy_net.exchange.fleet_client import FleetClient
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.generated import fleet_pb2_grpc
from policy_net.exchange.identity_file import make_private_folder
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.secrets_in_use import what_expired
from policy_net.exchange.spec import WeightSpec

_log = structlog.get_logger()


# Garbage of a server: young objects are looked through as always, and all of them at times of our own.
#
# Python looks through everything whenever enough has outlived its youth. With a thousand connections that takes a tenth
# of a second, a quarter once the log has grown, in which nobody is answered: it was the slowest hundredth of all
# pushes, and a quarter of the time in which clusters enroll. Such a pass finds next to nothing here: a few hundred
# objects.
# Source: the garbage collector of Python, `gc.set_threshold` (generation 2).

COLLECT_EVERY_SECONDS = 300.0
"""A pass of a quarter of a second then touches less than a thousandth of all calls."""
_NEVER_COLLECTED = 2**31 - 1


@contextmanager
def only_young() -> Iterator[None]:
    """Leave old objects alone meanwhile; afterwards Python does as before."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER_COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def collect_seldom(
    every_seconds: float = COLLECT_EVERY_SECONDS, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Look through everything now and then, for as long as this runs, and otherwise at young objects alone."""
    with only_young():
        while True:
            await sleep(every_seconds)
            gc.collect()


def report_settings(settings: LearnerSettings, spec: WeightSpec, telemetry: LearnerTelemetry) -> None:
    """Say how versions come to act, how updates become steps, and in what these are counted."""
    if settings.publish.auto_assign:
        _log.warning(
            "auto-assign-enabled",
            meaning="every new version acts on every cluster at once, unjudged, unless policyctl assign holds it",
            advice="for simulations and demonstrations; elsewhere set publish.auto_assign to false",
        )
    chosen = settings.aggregation
    facts = {"mode": chosen.mode.value}
    if chosen.mode is not AggregationMode.ASYNC:
        facts["strategy"] = chosen.strategy
    if chosen.mode is AggregationMode.ROBUST:
        facts["listen"] = settings.listen
        facts["advice"] = (
            "with one or two clusters nobody can be outvoted; set aggregation for another mode (docs/guide)"
        )
    _log.info("aggregation", **facts)
    only_replays = settings.only_replays(spec)
    telemetry.only_replays.set(float(only_replays))
    if settings.upstream is not None:
        _log.info("optimizer", policy=spec.policy, steps="the learner above takes them", only_replays=only_replays)
        return
    found = settings.optimizer_for(spec)
    _log.info(
        "optimizer",
        policy=spec.policy,
        units=found.units.value,
        chosen=settings.optimizer.units.value,
        learning_rate=found.learning_rate,
        decay_steps=found.decay_steps,
        only_replays=only_replays,
    )


async def serve(settings: LearnerSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        BadConfig, PolicyFileError, StateUnusable: it cannot start; nothing was begun.
        LearnerError: it cannot go on; everything acknowledged is on disk.
    """
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    telemetry = LearnerTelemetry()
    checked = read_named_files(settings, telemetry.secrets.on_replaced)
    check_start(settings)
    telemetry.secrets.add(*checked.external.secrets)
    following = asyncio.create_task(follow_secrets(telemetry))
    try:
        async with term_of(settings, telemetry, ending) as term:
            if term is not None:
                await _serve_term(settings, checked, telemetry, ending, term)
    finally:
        following.cancel()


async def _serve_term(
    settings: LearnerSettings,
    checked: CheckedConfig,
    telemetry: LearnerTelemetry,
    ending: asyncio.Event,
    term: Term,
) -> None:
    initial, limits, external = checked.initial, checked.limits, checked.external
    state = term.state
    with (
        contextlib.ExitStack() as stack,
        contextlib.closing(open_registry(settings, state)) as registry,
        open_identities(settings, external, state.path, registry, telemetry, time.time) as identities,
        contextlib.closing(BeliefStore(state.path, settings.beliefs, state.commits, state.shared)) as store,
    ):
        priors = PriorsSource(store, settings.beliefs, registry.registry, telemetry)
        priors.exclude(identities.registrar.store.turned_out)
        beliefs = FleetBeliefs(store, priors, settings.beliefs, registry, telemetry, time.time)
        learner = recovered_learner(settings, state, registry, initial, telemetry, beliefs)
        learner.check_active()
        term.lost = learner.process.fail
        lanes = lanes_of(settings, limits.message_bytes)
        lanes.report_to(telemetry)
        guard = ConnectionGuard(limits.connections)
        server = bounded_server(limits, identities.identity.caller, lanes, telemetry, guard)
        admin = _add_services(server, settings, learner, identities.identity, identities.registrar)
        port = bind("listen", server, settings.listen, identities.credentials)
        operators = stack.enter_context(_operators(settings, state, limits, learner, identities, telemetry))
        live = LiveReport(admin.report, asyncio.get_running_loop()) if settings.telemetry.shows_page else None
        with http_pages(
            settings.telemetry.http_listen,
            telemetry,
            lambda: _not_ready(telemetry, learner, lanes, ending),
            live,
            remark=lambda: what_expired(telemetry.secrets, time.time()),
        ) as http_port:
            report_settings(settings, learner.spec, telemetry)
            scorer = Scorer(settings.scores, state.path, registry, telemetry, time.time)
            learner.maintenance.on_version = scorer.add
            if settings.scores.enabled:
                learner.rollouts.gate.score = scorer.add
                learner.rollouts.gate.replay = SketchReplayer(settings.scores)
            learner.rollouts.turned_out = lambda cluster: identities.registrar.store.turned_out(cluster, time.time())
            uplink = _uplink(settings, state, registry, learner, telemetry)
            learner.start()
            scorer.start()
            await server.start()
            await operators.start()
            await _report_heads(identities, learner)
            enrollment, enrollment_guard = await start_enrollment(settings, identities, telemetry)
            _write_ports(
                settings.port_file,
                {
                    "port": port,
                    "http_port": http_port,
                    "enroll_port": identities.registrar.enroll_port or None,
                    "operator_socket": str(settings.state_dir / OPERATOR_SOCKET),
                },
            )
            _log.info(
                "learner-started", listen=settings.listen, port=port, http_port=http_port, head_step=learner.head.step
            )
            if uplink is not None:
                uplink.start()
            await _until_ending(
                ending,
                learner,
                keep_administrator(identities, registry),
                collect_seldom(),
                guard.watch(port),
                enrollment_guard.watch(identities.registrar.enroll_port),
            )
            await asyncio.gather(
                *(end.stop(settings.shutdown_grace_seconds) for end in (server, operators, enrollment))
            )
            if uplink is not None:
                await uplink.close()
            await _close(scorer, learner, identities)
        _log.info("learner-ended", head_step=learner.head.step)
        if learner.failed.done():
            raise learner.failed.result()


async def _close(scorer: Scorer, learner: Learner, identities: Identities) -> None:
    await scorer.close()
    await learner.close()
    if not learner.failed.done():
        await _report_heads(identities, learner)


async def _report_heads(identities: Identities, learner: Learner) -> None:
    """Say where the audit logs end: what is logged may be kept where this machine's user cannot write."""
    heads = {
        IDENTITIES: await learner.registry.call(identities.registrar.store.audit_head),
        VERSIONS: await learner.registry.call(learner.registry.registry.audit_head),
    }
    for log, (lines, head) in heads.items():
        _log.info("audit-log", log=log, lines=lines, head=head)


def recovered_learner(
    settings: LearnerSettings,
    state: StateDir,
    registry: RegistryThread,
    initial: PolicyFile,
    telemetry: LearnerTelemetry,
    beliefs: FleetBeliefs,
) -> Learner:
    """The learner as its state directory has it, with all versions signed."""
    started = time.perf_counter()
    quarantine = Quarantine(settings.quarantine, state.path, time.time, commits=state.commits)
    beliefs.priors.exclude(lambda cluster, _: quarantine.until(cluster) is not None)
    recovered = recover(state, registry.registry, settings, initial, time.time(), beliefs.priors)
    _sign_versions(state, registry.registry)
    _log.info(
        "state-recovered",
        head_step=recovered.head.step,
        replayed_updates=recovered.replayed,
        seconds=round(time.perf_counter() - started, 3),
    )
    return Learner(settings, Opened(state, registry, recovered, quarantine, beliefs), telemetry)


def _uplink(
    settings: LearnerSettings,
    state: StateDir,
    registry: RegistryThread,
    learner: Learner,
    telemetry: LearnerTelemetry,
) -> Uplink | None:
    """A region's way to the learner above; None where there is none above.

    Raises:
        IdentityFileError: the identity, the enrollment file or the trusted keys cannot be used.
    """
    above = settings.upstream
    if above is None:
        return None
    folder = state.path / UPSTREAM_FOLDER
    make_private_folder(folder)
    trust = FleetTrust(folder, above.name, allow_unsigned=False, clock=time.time)
    client = FleetClient(address_above(above, folder), lambda *_: None, on_enrolled=trust.on_enrolled)
    telemetry.secrets.add(*client.secrets)
    only_replays = settings.only_replays(learner.spec)
    clocks = (time.monotonic, time.time)
    return Uplink(above, learner, registry, client, trust, telemetry, *clocks, only_replays=only_replays)


def _add_services(
    server: grpc.aio.Server, settings: LearnerSettings, learner: Learner, who: CallerIdentity, registrar: Registrar
) -> AdminService:
    """Let a server answer agents and people; what answers people."""
    telemetry = learner.telemetry
    fleet_pb2_grpc.add_FleetServicer_to_server(
        FleetService(learner, who, registrar, telemetry, time.perf_counter), server
    )
    admin = AdminService(learner, who, registrar, telemetry, settings.scores.enabled)
    fleet_pb2_grpc.add_AdminServicer_to_server(admin, server)
    return admin


@contextlib.contextmanager
def _operators(
    settings: LearnerSettings,
    state: StateDir,
    limits: AdmissionLimits,
    learner: Learner,
    identities: Identities,
    telemetry: LearnerTelemetry,
) -> Iterator[grpc.aio.Server]:
    """The server behind the operators' socket, not yet started: the same services, for the learner's own user."""
    who = OperatorIdentity()
    server = bounded_server(limits, who.caller, one_lane(OPERATOR_SHARE), telemetry)
    _add_services(server, settings, learner, who, identities.registrar)
    path = state.path / socket_name(None if state.lease is None else state.lease.fence)
    with contextlib.closing(SocketAddress(path)) as address:
        bind_socket(server, address, path)
        yield server


def open_registry(settings: LearnerSettings, state: StateDir) -> RegistryThread:
    """The registry, and then the keys: what the registry saw of them says whether there must be some."""
    registry = Registry(state.path, state.commits, shared=state.shared)
    try:
        registry.signing = Signing(state.path, 60.0 * settings.signing.timestamp_minutes, time.time, state.commits)
    except BaseException:
        registry.close()
        raise
    return RegistryThread(registry, state.lease)


def _sign_versions(state: StateDir, registry: Registry) -> None:
    """Sign what an earlier program published; say what cannot be signed."""
    try:
        done, unsound = registry.sign_versions()
    except (OSError, SQLAlchemyError) as error:
        raise StateUnusable(
            f"state_dir {state.path}: its versions cannot be signed ({error}); free space or mend the disk"
        ) from error
    if done:
        _log.info("versions-signed", versions=done)
    for version in unsound:
        _log.error("version-not-sound", version=version, advice="see `policyctl version verify`")


async def _until_ending(ending: asyncio.Event, learner: Learner, *meanwhile: Coroutine[object, object, None]) -> None:
    tasks = [asyncio.create_task(work) for work in meanwhile]
    ended = asyncio.create_task(ending.wait())
    await asyncio.wait((ended, learner.failed), return_when=asyncio.FIRST_COMPLETED)
    ending.set()
    for task in (ended, *tasks):
        task.cancel()


def _not_ready(telemetry: LearnerTelemetry, learner: Learner, lanes: Lanes, ending: asyncio.Event) -> str:
    """Why no updates are taken; empty while they are."""
    if ending.is_set() or learner.failed.done():
        return "the learner ends"
    refusal = learner.maintenance.refusal
    if refusal is not None:
        return str(refusal)
    serving = (secret for secret in telemetry.secrets if secret.serves)
    return what_expired(serving, time.time()) or lanes.starved()


def _write_ports(path: Path | None, ports: Mapping[str, object]) -> None:
    """Write where the learner listens, whole or not at all; it is no secret."""
    if path is None:
        return
    try:
        write_whole(path, json.dumps(ports) + "\n", durable=False)
    except OSError as error:
        if not is_disk_full(error):
            raise
        _log.error("port-file-unwritten", file=str(path), reason=str(error), **ports)

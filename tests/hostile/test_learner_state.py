"""Every file of a learner's state directory, damaged in every way: mended and said so, or refused in one line."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from damage import DAMAGE, copies, files_of
from learner_makers import SPEC, policy, update
from learner_makers import settings as learner_settings

from foundation.command_line import exit_code
from foundation.text import plain_line
from global_learner.beliefs.belief_store import BeliefStore
from global_learner.beliefs.priors import FleetBeliefs, PriorsSource
from global_learner.learner import Learner
from global_learner.service.identity_setup import open_identities, read_external_credentials
from global_learner.service.server import open_registry, recovered_learner
from global_learner.settings import LearnerSettings
from global_learner.storage.audit import Order
from global_learner.storage.state_dir import StateDir
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.identity_file import new_key, signing_request

pytestmark = pytest.mark.heavy

View = dict[str, Any]
LONGEST_LINE = 700


@asynccontextmanager
async def opened(settings: LearnerSettings) -> AsyncIterator[tuple[Learner, Any, FleetBeliefs]]:
    """A learner with all that `serve` opens, but for its ports."""
    telemetry = LearnerTelemetry()
    with contextlib.ExitStack() as stack:
        state = stack.enter_context(StateDir(settings.state_dir))
        thread = stack.enter_context(contextlib.closing(open_registry(settings, state)))
        external = read_external_credentials(settings, time.time)
        identities = stack.enter_context(open_identities(settings, external, state.path, thread, telemetry, time.time))
        store = stack.enter_context(contextlib.closing(BeliefStore(state.path, settings.beliefs, state.commits)))
        priors = PriorsSource(store, settings.beliefs, thread.registry, telemetry)
        beliefs = FleetBeliefs(store, priors, settings.beliefs, thread, telemetry, time.time)
        learner = recovered_learner(settings, state, thread, policy(), telemetry, beliefs)
        identities.registrar.enroll_port = 7072
        learner.start()
        yield learner, identities, beliefs
        # As after kill -9: no last snapshot.
        await learner.maintenance.close()
        await learner.log.close()


def config(folder: Path) -> LearnerSettings:
    return learner_settings(
        folder,
        identity={"names": ["127.0.0.1"]},
        publish={"every_steps": 3},
        durability={"snapshot_every_steps": 4},
        quarantine={"rejections": 1, "within_updates": 1, "seconds": 3000.0},
    )


async def _live(settings: LearnerSettings) -> None:
    """A short life that leaves something in every file."""
    async with opened(settings) as (learner, identities, beliefs):
        for cluster in ("north", "south"):
            invitation = await identities.registrar.invite(cluster, "test")
            request = signing_request(new_key(), cluster)
            await identities.registrar.enroll(cluster, invitation.token, request)
            await learner.register(cluster, "", ("vgg-16",))
        seen = pb.TypeStatistics(job_type="vgg-16", kind="ps", ps=[1], workers=[2], mean_log_speed=[3.0], count=[4])
        await beliefs.on_report("north", 1, 1, [seen])
        for number in range(1, 11):
            await learner.pushes.push(update(number, base_step=number - 1), want_weights=False)
        await learner.rollouts.assign(2, ["south"], Order("test", time.time()))
        bad = np.full(SPEC.parameter_count, np.nan, np.float32)
        await learner.pushes.push(update(1, cluster="south", gradient=bad), want_weights=False)


async def _view(settings: LearnerSettings) -> View:
    """What a learner that starts from these files knows."""
    async with opened(settings) as (learner, identities, beliefs):
        versions = await learner.registry.call(learner.registry.registry.versions)
        for card in versions:
            await learner.registry.call(learner.registry.registry.policy_bytes, card.version)
        return {
            "head_step": learner.head.step,
            "weights": hashlib.sha256(learner.head.weights.tobytes()).hexdigest(),
            "moments": hashlib.sha256(learner.head.state.first_moment.tobytes()).hexdigest(),
            "ledger": learner.head.ledger.to_json(),
            "versions": [(card.version, card.digest, card.head_step) for card in versions],
            "clusters": [(e.cluster, e.incarnation, e.assigned_version) for e in learner.fleet.entries()],
            "quarantined": [name for name in ("north", "south") if learner.quarantine.until(name) is not None],
            "known": sorted(
                (row.name, row.role) for row in identities.identity.certificates.known.values() if not row.revoked
            ),
            "beliefs": beliefs.summary("north").statistics,
        }


def poll(settings: LearnerSettings) -> View:
    return asyncio.run(_view(settings))


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lived")
    asyncio.run(_live(config(folder)))
    return folder


def _replaced(settings: LearnerSettings, state_dir: Path) -> LearnerSettings:
    return settings.model_copy(update={"state_dir": state_dir})


def names(folder: Path) -> list[str]:
    """The files, one of each kind where there are many of a kind."""
    found: dict[str, str] = {}
    for name in files_of(folder):
        if name != "lock" and not name.endswith(("-shm", ".partial")):
            found[
                name if "." not in name or "/" not in name else f"{Path(name).parent}/{Path(name).suffix}/{len(name)}"
            ] = name
    return sorted(found.values())


def test_a_whole_state_directory_is_what_it_was(lived: Path, tmp_path: Path) -> None:
    shutil.copytree(lived / "state", tmp_path / "copy")
    view = poll(_replaced(config(lived), tmp_path / "copy"))
    assert view["head_step"] == 10
    assert view["quarantined"] == ["south"]
    assert view["beliefs"] == 1
    assert ("south", 1, 2) in view["clusters"]


def test_damage_is_mended_and_said_or_refused_in_one_line(lived: Path, tmp_path: Path) -> None:
    settings = config(lived)
    shutil.copytree(lived / "state", tmp_path / "first")
    whole = poll(_replaced(settings, tmp_path / "first"))
    wrong = []
    outcomes: dict[str, str] = {}
    for name, kind, copy in copies(lived / "state", tmp_path, names(lived / "state")):
        label = f"{name}={kind}"
        with structlog.testing.capture_logs() as said:
            try:
                view = poll(_replaced(settings, copy))
            except Exception as error:
                outcomes[label] = "refused"
                if exit_code(error) != 2 or not str(error).isprintable() or len(str(error)) > LONGEST_LINE:
                    wrong.append(f"{label}: {type(error).__name__}: {plain_line(str(error), 300)}")
                continue
        warned = [line["event"] for line in said if line["log_level"] in ("warning", "error")]
        outcomes[label] = "whole" if view == whole else f"mended, {warned}"
        if view != whole and not warned:
            changed = [key for key in whole if view[key] != whole[key]]
            wrong.append(f"{label}: silently other in { {key: (whole[key], view[key]) for key in changed} }"[:600])
    assert not wrong, "\n".join(wrong)
    assert set(outcomes.values()) >= {"refused", "whole"}
    assert {label.partition("=")[2] for label in outcomes} == set(DAMAGE)

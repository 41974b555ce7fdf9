"""Every file of a killed learner's state directory, damaged at every place that matters: nothing lost, or named.

The directory is looked at as `global-learner accept-loss` without `--yes` looks: everything that a start reads and
checks, and nothing written. Each damage is undone before the next. Real starts are `test_learner_state.py`'s.
`FEDL2_PLACES` says how many random places of each file are tried beside the boundaries of its records (`make soak`: 200
of every file).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from damage import files_of
from learner_makers import SPEC, policy, update
from sqlalchemy.exc import SQLAlchemyError
from test_learner_state import View, config, opened

from global_learner.beliefs.belief_store import BeliefStore
from global_learner.enrollment.identity_store import IdentityStore
from global_learner.errors import LearnerError
from global_learner.recovery import read_state
from global_learner.registry.registry import Registry
from global_learner.settings import LearnerSettings
from global_learner.storage.commits import Losses
from global_learner.storage.receipts import read_receipts
from global_learner.storage.state_dir import IDENTITY_FOLDER, StateDir
from global_learner.storage.update_log import segment_header
from global_learner.storage.update_records import PREFIXES, Prefix
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.identity_file import new_key, signing_request

PLACES = int(os.environ.get("FEDL2_PLACES", "4"))
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600 + 60 * PLACES)]
DATABASES = ("registry.sqlite", "beliefs.sqlite", "identity/identities.sqlite")
REBUILT = ("lock", "-shm", ".partial")
"""Hold nothing: a process number, SQLite's index of its WAL, a file that was never finished."""
ELSEWHERE = ("quarantine.jsonl", "ca.key", "ca.pem", "admin.pem")
"""Files of other stores, which `test_learner_state.py` damages."""
SPAN = 512


async def _live(settings: LearnerSettings, keep_wal: bool, copy: Path) -> None:
    """A life that leaves something everywhere, and what is on disk when it is killed."""
    async with opened(settings) as (learner, identities, beliefs):
        readers = []
        for cluster in ("north", "south", "east"):
            invitation = await identities.registrar.invite(cluster, "test")
            await identities.registrar.enroll(cluster, invitation.token, signing_request(new_key(), cluster))
            await learner.register(cluster, "", ("vgg-16",))
        seen = pb.TypeStatistics(job_type="vgg-16", kind="ps", ps=[1], workers=[2], mean_log_speed=[3.0], count=[4])
        await beliefs.on_report("north", 1, 1, [seen])
        if keep_wal:  # a reader keeps the WAL from being moved into the file
            for name in DATABASES:
                reader = sqlite3.connect(settings.state_dir / name)
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
                readers.append(reader)
        for number in range(1, 24):
            await learner.push(update(number, base_step=number - 1), want_weights=False)
        await learner.operator.assign(2, ["south"], "test")
        await identities.registrar.revoke("east", "test")
        await learner.register("north", "", ("vgg-16",))
        await beliefs.on_report("north", 2, 1, [seen])
        await learner.maintenance._queue.close()
        shutil.copytree(settings.state_dir, copy)
        for reader in readers:
            reader.close()
        learner.maintenance._queue = type(learner.maintenance._queue)(lambda _: None, lambda: None)
        learner.maintenance._queue.start()


def seen_of(settings: LearnerSettings) -> tuple[View, list[str]]:
    """All that a start would know, and the losses that it would refuse; nothing is written."""
    with StateDir(settings.state_dir, Losses.LIST) as state, contextlib.ExitStack() as stack:
        commits = state.commits
        registry = stack.enter_context(contextlib.closing(Registry(state.path, commits)))
        identities = stack.enter_context(contextlib.closing(IdentityStore(state.path / IDENTITY_FOLDER, commits)))
        beliefs = stack.enter_context(contextlib.closing(BeliefStore(state.path, settings.beliefs, commits)))
        try:
            found = read_state(state, registry, settings, policy(), 0.0)
        except LearnerError as error:
            raise type(error)("; ".join((*commits.losses, str(error)))) from error
        except SQLAlchemyError:
            if not commits.losses:
                raise
            return {}, list(commits.losses)
        if commits.losses:
            return {}, list(commits.losses)
        versions = registry.versions()
        head = found.head
        return {
            "head": (head.step, head.weights.tobytes(), head.state.second_moment.tobytes(), head.ledger.to_json()),
            "counters": found.counters,
            "settings": found.logged,
            "versions": versions,
            "files": [hashlib.sha256(registry.policy_bytes(card.version)[1]).hexdigest() for card in versions],
            "heads": [hashlib.sha256(registry.head_bytes(card.version) or b"").hexdigest() for card in versions],
            "clusters": registry.registrations(),
            "audit": [*registry.audit(), *identities.audit()],
            "known": identities.known,
            "identities": identities.clusters(0.0),
            "beliefs": (beliefs.reports(lambda _name, _when: True), beliefs.vocabulary()),
            "receipts": list(read_receipts(state.path, SPEC.digest)),
        }, list(commits.losses)


def boundaries(path: Path) -> list[int]:
    """Where records, lines, pages or frames begin."""
    data = path.read_bytes()
    if path.suffix == ".log":
        found, at = [0, len(segment_header(SPEC.digest, 1))], len(segment_header(SPEC.digest, 1))
        while (prefix := Prefix.parse(data[at:], 3)) is not None and prefix.length and at < len(data):
            at += PREFIXES[3] + prefix.length
            found.append(at)
        return found
    if path.suffix in (".jsonl", ".json"):
        return [0, *(place + 1 for place, byte in enumerate(data) if byte == ord("\n"))]
    if path.name.endswith("-wal"):
        return [0, *range(32, len(data), 24 + 4096)]
    return list(range(0, len(data), 4096))


def damages(path: Path, rng: random.Random) -> Iterator[tuple[str, Callable[[bytes], bytes | None]]]:
    """Each damage by its name; None removes the file."""
    size = path.stat().st_size
    yield "remove", lambda _: None
    places = {place for place in boundaries(path) if place < size} | {
        rng.randrange(size) for _ in range(PLACES) if size
    }
    for place in sorted(places):
        bit = 1 << rng.randrange(8)
        yield f"zero@{place}", lambda data, at=place: data[:at] + bytes(len(data[at : at + SPAN])) + data[at + SPAN :]
        yield f"flip@{place}", lambda data, at=place, b=bit: data[:at] + bytes([data[at] ^ b]) + data[at + 1 :]
        yield f"truncate@{place}", lambda data, at=place: data[:at]


def named(name: str, said: str) -> bool:
    """Whether a refusal says where to look: the file, its folder where it is one of many, or the database of a WAL."""
    path = Path(name.removesuffix("-wal"))
    return path.name in said or (path.parent.name != "" and f"{path.parent.name}" in said)


@pytest.mark.parametrize("keep_wal", [False, True], ids=["checkpointed", "with-wal"])
def test_no_damage_after_a_kill_is_silent(tmp_path: Path, keep_wal: bool) -> None:
    settings = config(tmp_path)
    killed = tmp_path / "killed"
    asyncio.run(_live(settings, keep_wal, killed))
    settings = settings.model_copy(update={"state_dir": killed})
    whole, losses = seen_of(settings)
    assert losses == []
    names = [
        name
        for name in files_of(killed)
        if not name.endswith(REBUILT) and "spare-" not in name and Path(name).name not in ELSEWHERE
    ]
    for folder in ("policies", "heads"):  # all alike; the newest version's is one that may not go
        many = [name for name in names if name.startswith(folder)]
        names = [name for name in names if name not in many[2:]]
    if keep_wal:
        assert all((killed / f"{name}-wal").stat().st_size > 0 for name in DATABASES)
    rng, counts, silent = random.Random(5), Counter[tuple[str, str]](), []
    for name in names:
        path = killed / name
        original = path.read_bytes()
        for kind, damage in damages(path, rng):
            damaged = damage(original)
            if damaged is None:
                path.unlink()
            elif damaged == original:
                continue
            else:
                path.write_bytes(damaged)
            try:
                view, losses = seen_of(settings)
                outcome = "refused" if losses else "whole" if view == whole else "SILENT"
                said = "; ".join(losses)
            except LearnerError as error:
                outcome, said = "refused", str(error)
            except Exception as error:
                outcome, said = "SILENT", f"{type(error).__name__}: {error}"
            if outcome == "refused" and not named(name, said):
                outcome = "SILENT"
            if outcome == "SILENT":
                silent.append(f"{name} {kind}: {said[:200]}")
            counts[Path(name).name if "sqlite" in name else Path(name).parts[0], outcome] += 1
            path.write_bytes(original)
    print({f"{store} {outcome}": count for (store, outcome), count in sorted(counts.items())})
    assert not silent, f"{len(silent)} of {counts.total()}:\n" + "\n".join(silent[:40])
    assert seen_of(settings) == (whole, [])

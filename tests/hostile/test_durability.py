"""Every file of a killed learner's state directory, damaged at every place that matters: nothing lost, or named.

The directory is looked at as `global-learner accept-loss` without `--yes` looks: everything that a start reads and
checks, and nothing written. What a start alone reads (the authority, the administrator's file) is opened as a start
opens it, in a copy. Each damage is undone before the next. Real starts are `test_learner_state.py`'s. `FEDL2_PLACES`
says how many random places of each file are tried beside the boundaries of its records (`make soak`: 200 of every
file); without it a few of both are.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from damage import files_of
from learner_makers import SPEC, policy, update
from sqlalchemy import select
from state_files import FILES, SAID, Finder, pattern_of
from test_learner_state import View, config, opened

from global_learner.errors import LearnerError
from global_learner.loss import read_stores
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.registry.signing import Signing
from global_learner.registry.tables import VersionRow
from global_learner.scores.replay_set import BASELINES, REPLAYS
from global_learner.scores.scoring import baselines_file, read_baselines, write_baselines
from global_learner.service.identity_setup import ExternalCredentials, open_identities
from global_learner.settings import LearnerSettings
from global_learner.storage.audit import Order
from global_learner.storage.commits import Losses
from global_learner.storage.receipts import read_receipts, read_removed
from global_learner.storage.state_dir import IDENTITY_FOLDER, StateDir
from global_learner.storage.update_log import segment_header
from global_learner.storage.update_records import PREFIXES, Prefix
from global_learner.telemetry import LearnerTelemetry
from policy_net.errors import SecretExposed
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.identity_file import new_key, read_identity, signing_request
from policy_net.exchange.signed_documents import KeyRole

NIGHTLY = "FEDL2_PLACES" in os.environ
PLACES = int(os.environ.get("FEDL2_PLACES", "2"))
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600 + 60 * PLACES)]
DATABASES = ("registry.sqlite", "beliefs.sqlite", "identity/identities.sqlite")
BOUNDARIES = 4
"""Of each file in `make test-long`."""
ALIKE = 2
"""Files of one kind that are damaged: the first, and the newest, which is one that may not go."""
SPAN = 512
CACHED = {entry.name: dict.fromkeys(BASELINES, 7.5) for entry in REPLAYS}


async def _live(settings: LearnerSettings, keep_wal: bool, copy: Path) -> None:
    """A life that leaves something everywhere, and what is on disk when it is killed."""
    few = settings.durability.model_copy(update={"max_receipts_bytes": 4000})
    settings = settings.model_copy(update={"durability": few})
    async with opened(settings) as (learner, identities, beliefs):
        readers = []
        registry = learner.registry.registry
        assert registry.signing is not None
        registry.signing.rotate(KeyRole.ROOT)
        registry.signing.timestamp("north", 1)
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
        bad = np.full(SPEC.parameter_count, np.nan, np.float32)
        await learner.pushes.push(update(1, cluster="east", gradient=bad), want_weights=False)
        for number in range(1, 24):
            await learner.pushes.push(update(number, base_step=number - 1), want_weights=False)
        await learner.rollouts.assign(2, ["south"], Order("test", time.time()))
        await identities.registrar.revoke("east", "test")
        await learner.register("north", "", ("vgg-16",))
        await beliefs.on_report("north", 2, 1, [seen])
        await learner.maintenance._queue.close()
        scores = settings.state_dir / "scores"
        scores.mkdir()
        write_baselines(baselines_file(scores), CACHED)
        shutil.copytree(settings.state_dir, copy)
        for reader in readers:
            reader.close()
        learner.maintenance._queue = type(learner.maintenance._queue)(lambda _: None, lambda: None)
        learner.maintenance._queue.start()


def seen_of(settings: LearnerSettings) -> tuple[View, list[str]]:
    """All that a start would know, and the losses that it would refuse; nothing is written."""
    with StateDir(settings.state_dir, Losses.LIST) as state, contextlib.ExitStack() as stack:
        losses = state.commits.losses
        try:
            stores = read_stores(state, settings, policy(), 0.0, stack)
        except LearnerError as error:
            raise type(error)("; ".join((*losses, str(error)))) from error
        if losses:
            return {}, list(losses)
        assert stores.keys_usable
        registry, identities, beliefs = stores.registry, stores.identities, stores.beliefs
        signing = Signing(state.path, 3600.0, lambda: 0.0, state.commits)
        versions = registry.versions()
        head = stores.found.head
        with registry.database.session() as session:
            heads = [digest for digest in session.scalars(select(VersionRow.head_digest)) if digest]
        assert identities is not None
        return {
            "head": (head.step, head.weights.tobytes(), head.state.second_moment.tobytes(), head.ledger.to_json()),
            "counters": stores.found.counters,
            "settings": stores.found.logged,
            "versions": versions,
            "files": [
                hashlib.sha256(registry.policies.path(card.digest).read_bytes()).hexdigest() for card in versions
            ],
            "heads": [hashlib.sha256(registry.heads.path(digest).read_bytes()).hexdigest() for digest in heads],
            "clusters": registry.registrations(),
            "audit": [*registry.audit(), *identities.audit()],
            "known": identities.known,
            "identities": identities.clusters(0.0),
            "beliefs": (beliefs.reports(lambda _name, _when: True), beliefs.vocabulary()),
            "receipts": list(read_receipts(state.path, SPEC.digest)),
            "removed": read_removed(state.receipts),
            "quarantine": stores.quarantine.kept,
            "roots": signing.keys.roots,
            "keys": [key.private_bytes_raw() for key in signing.keys._keys.values()],
            "root key": signing.keys.root_key_present,
            "timestamps": signing.reserved_number,
        }, list(losses)


def identities_of(settings: LearnerSettings) -> View:
    """Who may call and who signs, once a start has opened it."""
    folder = settings.state_dir / IDENTITY_FOLDER
    with StateDir(settings.state_dir) as state, contextlib.ExitStack() as stack:
        thread = stack.enter_context(contextlib.closing(RegistryThread(Registry(state.path, state.commits))))
        opening = open_identities(settings, ExternalCredentials(), state.path, thread, LearnerTelemetry(), time.time)
        known = stack.enter_context(opening).identity.certificates
        assert known is not None
        key: Any = load_pem_private_key((folder / "ca.key").read_bytes(), None)
        return {
            "authority": x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()).public_bytes(Encoding.DER),
            "key": key.private_numbers(),
            "administrator": read_identity(folder / "admin.pem").fingerprint,
            "known": known.known,
        }


def boundaries(path: Path) -> list[int]:
    """Where records, lines, pages or frames begin."""
    data = path.read_bytes()
    if path.suffix == ".log":
        found, at = [0, len(segment_header(SPEC.digest, 1))], len(segment_header(SPEC.digest, 1))
        while (prefix := Prefix.parse(data[at:], 3)) is not None and prefix.length and at < len(data):
            at += PREFIXES[3] + prefix.length
            found.append(at)
        return found
    if path.suffix in (".jsonl", ".json", ".pem", ".key"):
        return [0, *(place + 1 for place, byte in enumerate(data) if byte == ord("\n"))]
    if path.name.endswith("-wal"):
        return [0, *range(32, len(data), 24 + 4096)]
    return list(range(0, len(data), 4096))


def damages(path: Path, rng: random.Random) -> Iterator[tuple[str, Callable[[bytes], bytes | None]]]:
    """Each damage by its name; None removes the file."""
    size = path.stat().st_size
    yield "remove", lambda _: None
    begins = [place for place in boundaries(path) if place < size]
    if not NIGHTLY and len(begins) > BOUNDARIES:
        begins = [begins[0], begins[-1], *rng.sample(begins[1:-1], BOUNDARIES - 2)]
    for place in sorted({*begins, *(rng.randrange(size) for _ in range(PLACES) if size)}):
        bit = 1 << rng.randrange(8)
        yield f"zero@{place}", lambda data, at=place: data[:at] + bytes(len(data[at : at + SPAN])) + data[at + SPAN :]
        yield f"flip@{place}", lambda data, at=place, b=bit: data[:at] + bytes([data[at] ^ b]) + data[at + 1 :]
        yield f"truncate@{place}", lambda data, at=place: data[:at]


def named(name: str, said: str) -> bool:
    """Whether a refusal says where to look: the file, its folder where it is one of many, or the database of a WAL."""
    path = Path(name.removesuffix("-wal"))
    return path.name in said or (path.parent.name != "" and f"{path.parent.name}" in said)


class Looks:
    """Looks at one killed state directory, and judges what damage did to it."""

    def __init__(self, settings: LearnerSettings, copy: Path) -> None:
        self.settings = settings
        self._copy = settings.model_copy(update={"state_dir": copy})
        self.whole, losses = seen_of(settings)
        assert losses == []
        self.identities = self._started()

    def _started(self) -> View:
        shutil.rmtree(self._copy.state_dir, ignore_errors=True)
        shutil.copytree(self.settings.state_dir, self._copy.state_dir)
        return identities_of(self._copy)

    def judge(self, name: str, finder: Finder) -> tuple[str, str]:
        """What became of it (whole, refused, said, SILENT), and what was said."""
        with structlog.testing.capture_logs() as lines:
            try:
                if finder is Finder.CACHE:
                    kept = read_baselines(self.settings.state_dir / name)
                    return ("whole" if kept in (None, CACHED) else "SILENT"), ""
                if finder is Finder.IDENTITIES:
                    same, losses = self._started() == self.identities, []
                else:
                    view, losses = seen_of(self.settings)
                    same = view == self.whole
            except (LearnerError, SecretExposed) as error:
                losses = [str(error)]
            except Exception as error:
                return "SILENT", f"{type(error).__name__}: {error}"
        if losses:
            said = "; ".join(losses)
            return ("refused" if named(name, said) and finder is not Finder.NOBODY else "SILENT"), said
        if same:
            return "whole", ""
        noted = any(str(line.get("file", "")).endswith(name) for line in lines)
        return ("said" if noted and pattern_of(name) in SAID else "SILENT"), str(lines)


@pytest.mark.parametrize("name", ["budgets.json", "log/index", "signing/root.key.bak", "new/file"])
def test_a_file_that_nobody_has_named_a_finder_for_is_missed(name: str) -> None:
    with pytest.raises(AssertionError, match="a new file of the state directory"):
        pattern_of(name)


@pytest.mark.parametrize("keep_wal", [False, True], ids=["checkpointed", "with-wal"])
def test_no_damage_after_a_kill_is_silent(tmp_path: Path, keep_wal: bool) -> None:
    settings = config(tmp_path)
    killed = tmp_path / "killed"
    asyncio.run(_live(settings, keep_wal, killed))
    looks = Looks(settings.model_copy(update={"state_dir": killed}), tmp_path / "started")
    by_pattern: dict[str, list[str]] = {}
    for name in files_of(killed):
        by_pattern.setdefault(pattern_of(name), []).append(name)
    if keep_wal:
        assert all((killed / f"{name}-wal").stat().st_size > 0 for name in DATABASES)
        assert set(FILES) - set(by_pattern) <= {"*.partial", "log/spare-*.log"}, "nothing left such a file"
        # Whatever is no database's is as it was without a WAL.
        by_pattern = {pattern: names for pattern, names in by_pattern.items() if ".sqlite" in pattern}
    rng, counts, silent = random.Random(5), Counter[tuple[str, str]](), []
    for pattern, names in sorted(by_pattern.items()):
        for name in names if len(names) <= ALIKE else (names[0], names[-1]):
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
                outcome, said = looks.judge(name, FILES[pattern])
                if outcome == "SILENT":
                    silent.append(f"{name} {kind}: {said[:300]}")
                counts[pattern, outcome] += 1
                path.write_bytes(original)
                path.chmod(0o600)
        if NIGHTLY:
            print(
                pattern, {outcome: count for (store, outcome), count in counts.items() if store == pattern}, flush=True
            )
    print({f"{store} {outcome}": count for (store, outcome), count in sorted(counts.items())})
    assert not silent, f"{len(silent)} of {counts.total()}:\n" + "\n".join(silent[:40])
    assert seen_of(looks.settings) == (looks.whole, [])

"""Losses of acknowledged state: refused at the start by name, and gone on from by an operator's explicit word alone."""

import contextlib
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from learner_makers import SPEC, applied, policy, write_segment
from learner_makers import settings as learner_settings
from sqlalchemy import select

from global_learner.enrollment.authority import ADMINISTRATOR
from global_learner.errors import Rejection, StateUnusable
from global_learner.loss import accept_losses, find_losses
from global_learner.recovery import LOST_FOLDER, Recovered, recover
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.registry.signing import Signing
from global_learner.registry.tables import VersionRow
from global_learner.rollout.rollout_store import RolloutStore
from global_learner.service.identity_setup import ExternalCredentials, open_identities
from global_learner.settings import LearnerSettings
from global_learner.storage.audit import Order
from global_learner.storage.commits import LOG
from global_learner.storage.receipts import audit, read_receipts, read_removed
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_log import segment_name
from global_learner.storage.update_records import UpdateKind
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.quarantine import Quarantine
from policy_net.exchange.signed_documents import KeyRole, timestamp


def started(config: LearnerSettings, registrations: int = 0) -> Recovered:
    """What a learner begins with; it registers a cluster so often."""
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        try:
            found = recover(state, registry, config, policy(), 0.0)
            for _ in range(registrations):
                registry.register("north", False, (), 0.0)
        finally:
            registry.close()
    return found


def served(config: LearnerSettings, last: int, acknowledged: int) -> Path:
    """A state directory after a kill: one segment with so many records, of which so many were acknowledged."""
    started(config, registrations=1)
    with StateDir(config.state_dir) as state:
        state.commits.committed(LOG, acknowledged)
    return write_segment(config.state_dir / "log", 1, [applied(step) for step in range(1, last + 1)])


def test_an_acknowledged_update_at_the_torn_end_of_the_log_is_missed(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    path = served(config, last=5, acknowledged=5)
    path.write_bytes(path.read_bytes()[:-3])
    for _ in range(2):  # a second look finds the same
        with pytest.raises(StateUnusable, match=r"log: update 5 is missing, which commits knows .* accept-loss"):
            started(config)


def test_an_update_that_was_written_and_not_acknowledged_may_be_torn(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    path = served(config, last=5, acknowledged=4)
    path.write_bytes(path.read_bytes()[:-3])
    assert started(config).head.step == 4


def test_a_log_that_is_gone_is_missed(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    served(config, last=5, acknowledged=5).unlink()
    with pytest.raises(StateUnusable, match=r"updates 1 to 5 are missing"):
        started(config)


def test_a_snapshot_that_is_gone_is_missed_by_the_log_behind_it(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    served(config, last=5, acknowledged=5)
    started(config)
    write_segment(config.state_dir / "log", 6, [])
    (snapshot,) = (config.state_dir / "snapshots").glob("*.snapshot")
    snapshot.unlink()
    (config.state_dir / "commits").unlink()
    with pytest.raises(StateUnusable, match=r"updates 1 to 5 are missing"):
        started(config)


def test_a_registry_of_an_earlier_day_is_refused_by_name(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    started(config, registrations=1)
    old = tmp_path / "old"
    shutil.copy(config.state_dir / "registry.sqlite", old)
    started(config, registrations=2)
    shutil.copy(old, config.state_dir / "registry.sqlite")
    with pytest.raises(StateUnusable, match=r"registry.sqlite: 2 changes fewer than commits saw"):
        started(config)


@pytest.mark.parametrize("damaged", ["the log", "the registry", "both"])
def test_an_accepted_loss_is_written_down_and_no_number_comes_again(tmp_path: Path, damaged: str) -> None:
    config = learner_settings(tmp_path)
    started(config, registrations=1)
    shutil.copy(config.state_dir / "registry.sqlite", tmp_path / "old")
    path = served(config, last=20, acknowledged=20)
    whole = path.read_bytes()
    if damaged != "the registry":
        path.write_bytes(whole[: len(whole) // 2] + bytes(400) + whole[len(whole) // 2 + 400 :])
    if damaged != "the log":
        shutil.copy(tmp_path / "old", config.state_dir / "registry.sqlite")
    with pytest.raises(StateUnusable):
        started(config)

    listed = find_losses(config, policy(), 7.0)
    assert listed == find_losses(config, policy(), 7.0)
    with pytest.raises(StateUnusable):
        started(config)  # listing changes nothing
    assert accept_losses(config, policy(), "ada", 7.0) == listed
    assert any("registry.sqlite" in line for line in listed) == (damaged != "the log")
    assert any("update" in line for line in listed) == (damaged != "the registry")

    found = started(config)
    assert found.head.step == found.head.ledger.reset_step == 21
    assert find_losses(config, policy(), 8.0) == []
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        lines = [(line.actor, line.action, line.detail) for line in registry.audit()]
        (north,) = registry.registrations()
        registry.close()
    assert [("ada", "loss-accepted", line) for line in listed] == lines[: len(listed)]
    assert north.incarnation > 1
    assert (config.state_dir / LOST_FOLDER / "7" / "log" / segment_name(1)).exists()
    # What is applied from here on is audited as ever.
    write_segment(config.state_dir / "log", 22, [applied(22, incarnation=north.incarnation)])
    counts = audit(read_receipts(config.state_dir, SPEC.digest), read_removed(config.state_dir / "receipts"))
    assert counts["north", north.incarnation] == 1


@pytest.mark.parametrize("known_by", ["commits", "the snapshot alone"])
def test_versions_that_a_registry_lost_leave_their_files_and_no_number_comes_again(
    tmp_path: Path, known_by: str
) -> None:
    config = learner_settings(tmp_path, publish={"every_steps": 5})
    registry = config.state_dir / "registry.sqlite"
    started(config, registrations=1)
    shutil.copy(registry, tmp_path / "old")
    served(config, last=20, acknowledged=20)
    started(config)
    known = sorted(path.name for path in (config.state_dir / "policies").iterdir())
    assert len(known) == 5
    shutil.copy(tmp_path / "old", registry)
    if known_by != "commits":
        (config.state_dir / "commits").unlink()

    with pytest.raises(StateUnusable, match=r"accept-loss"):
        started(config)
    listed = find_losses(config, policy(), 7.0)
    assert any("v5" in line and "the newest is v1" in line for line in listed)
    assert accept_losses(config, policy(), "ada", 7.0) == listed

    assert started(config).head.step == 21
    assert find_losses(config, policy(), 8.0) == accept_losses(config, policy(), "ada", 8.0) == []
    (config.state_dir / "commits").unlink()  # the registry knows it too
    assert find_losses(config, policy(), 8.0) == []
    kept = sorted(path.name for path in (config.state_dir / "policies").iterdir())
    lost = sorted(path.name for path in (config.state_dir / LOST_FOLDER / "7" / "policies").iterdir())
    assert (len(kept), sorted(kept + lost)) == (1, known)
    write_segment(config.state_dir / "log", 22, [applied(step, incarnation=2) for step in range(22, 26)])
    started(config)
    with StateDir(config.state_dir) as state, contextlib.closing(Registry(state.path, state.commits)) as book:
        assert [(card.version, card.parent) for card in book.versions()] == [(1, 0), (6, 1)]

    # A registry that falls back once more is missed again.
    shutil.copy(tmp_path / "old", registry)
    with pytest.raises(StateUnusable, match=r"registry\.sqlite"):
        started(config)
    assert any("v6" in line for line in find_losses(config, policy(), 9.0))


@pytest.mark.parametrize("damaged", ["gone", "emptied", "flipped"])
@pytest.mark.parametrize("taken_under", ["the same", "others"])
def test_lost_settings_of_the_log_are_replaced_by_those_of_the_configuration(
    tmp_path: Path, damaged: str, taken_under: str
) -> None:
    buffered = {"mode": "buffered", "strategy": "FedMedian", "buffer": 3, "vote_momentum": 0.5}
    config = learner_settings(tmp_path, aggregation=buffered)
    started(config, registrations=1)
    kinds = [UpdateKind.ARRIVAL, UpdateKind.ARRIVAL, UpdateKind.CLOSING, UpdateKind.ARRIVAL]
    records = [
        replace(applied(step, cluster=f"c{step}", sequence=1), kind=kind) for step, kind in enumerate(kinds, start=1)
    ]
    write_segment(config.state_dir / "log", 1, records[:2])
    started(config)  # what waits for its cohort is in the snapshot now
    write_segment(config.state_dir / "log", 3, records[2:])
    with StateDir(config.state_dir) as state:
        state.commits.committed(LOG, 4)
    if taken_under == "others":
        config = learner_settings(tmp_path, aggregation={"mode": "rounds"})
    path = config.state_dir / "aggregation.json"
    if damaged == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damaged == "emptied" else path.read_bytes().replace(b"0.5", b"0.7"))
    for _ in range(2):
        with pytest.raises(StateUnusable, match=r"aggregation\.json: .*accept-loss"):
            started(config)
    listed = find_losses(config, policy(), 7.0)
    assert "aggregation.json" in listed[0]
    assert len(listed) == (1 if taken_under == "the same" else 3)
    assert accept_losses(config, policy(), "ada", 7.0) == listed
    assert (config.state_dir / LOST_FOLDER / "7" / "aggregation.json").exists() == (damaged != "gone")
    found = started(config)
    assert (found.head.step, found.head.aggregator.waiting) == (5, 1 if taken_under == "the same" else 0)
    assert find_losses(config, policy(), 8.0) == accept_losses(config, policy(), "ada", 8.0) == []


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["gone", "flipped", "emptied"])
@pytest.mark.parametrize("file", ["policies of v3", "policies of v5", "heads of v5", "all but v1's"])
def test_a_version_whose_file_is_lost_stops_no_start_and_is_given_up_by_its_name(
    tmp_path: Path, file: str, how: str
) -> None:
    config = learner_settings(tmp_path, publish={"every_steps": 5})
    started(config, registrations=1)
    served(config, last=20, acknowledged=20)
    started(config)
    with StateDir(config.state_dir) as state, contextlib.closing(Registry(state.path, state.commits)) as book:
        RolloutStore(book).assign(3, SPEC.digest, ["north"], Order("test", 0.0), to_newest=False)
        policies = {card.version: book.policies.path(card.digest) for card in book.versions()}
        with book.database.session() as session:
            heads = {row.version: book.heads.path(row.head_digest) for row in session.scalars(select(VersionRow))}
    lost = [path for version, path in (*policies.items(), *heads.items()) if version > 1]
    if file != "all but v1's":
        lost = [(policies if file.startswith("policies") else heads)[int(file[-1])]]
    for path in lost:
        if how == "gone":
            path.unlink()
        else:
            data = bytearray(path.read_bytes())
            data[-5] ^= 1
            path.write_bytes(data if how == "flipped" else b"")

    for _ in range(2):  # nothing but v1 is needed by what runs
        started(config)
    listed = find_losses(config, policy(), 7.0)
    assert sorted(path.name in " ".join(listed) for path in lost) == [True] * len(listed)
    assert accept_losses(config, policy(), "ada", 7.0) == listed
    started(config)
    assert find_losses(config, policy(), 8.0) == accept_losses(config, policy(), "ada", 8.0) == []
    aside = config.state_dir / LOST_FOLDER / "7"
    assert all((aside / path.parent.name / path.name).exists() == (how != "gone") for path in lost)
    with StateDir(config.state_dir) as state, contextlib.closing(Registry(state.path, state.commits)) as book:
        kept = {card.version for card in book.versions() if card.kept}
        gone = {version for version, path in policies.items() if path in lost}
        assert (len(book.versions()), kept) == (5, {1, 2, 3, 4, 5} - gone)
        (north,) = book.registrations()
        assert north.assigned_version == (3 if 3 in kept else 2 if 2 in kept else 1)
        assert book.register("west", True, (), 0.0).assigned_version == max(kept)
        assert all(book.policy_bytes(version) for version in kept)
        assert book.publish(policy(seed=8), 30, 0.0, {}, 0.0, assign_all=True).version == 6


@pytest.mark.parametrize("how", ["flipped", "emptied", "gone"])
def test_a_lost_snapshot_is_gone_on_from_by_the_one_before_it(tmp_path: Path, how: str) -> None:
    config = learner_settings(tmp_path)
    served(config, last=20, acknowledged=20)
    before = started(config).head.weights.copy()
    write_segment(config.state_dir / "log", 21, [applied(step) for step in range(21, 26)])
    assert started(config).head.weights.tobytes() != before.tobytes()
    (newest,) = (config.state_dir / "snapshots").glob("*.snapshot")
    if how == "gone":
        newest.unlink()
    else:
        data = bytearray(newest.read_bytes())
        data[len(data) // 2] ^= 1
        newest.write_bytes(data if how == "flipped" else b"")
    for _ in range(2):
        with pytest.raises(StateUnusable, match=r"snapshots.*accept-loss"):
            started(config)
    listed = find_losses(config, policy(), 7.0)
    assert "snapshots" in listed[0]
    assert any("updates 21 to 25 are missing" in line for line in listed)
    assert accept_losses(config, policy(), "ada", 7.0) == listed
    assert (config.state_dir / LOST_FOLDER / "7" / "snapshots" / newest.name).exists() == (how != "gone")
    found = started(config)
    assert (found.head.step, found.head.weights.tobytes()) == (26, before.tobytes())
    assert find_losses(config, policy(), 8.0) == accept_losses(config, policy(), "ada", 8.0) == []


def test_without_an_earlier_snapshot_a_damaged_one_needs_a_backup(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    served(config, last=20, acknowledged=20)
    started(config)
    (newest,) = (config.state_dir / "snapshots").glob("*")
    newest.write_bytes(newest.read_bytes()[:-1])
    for poll in (find_losses, lambda *about: accept_losses(*about[:2], "ada", 7.0)):
        with pytest.raises(StateUnusable, match=r"snapshot: damaged.*restore"):
            poll(config, policy(), 7.0)


def test_a_snapshot_that_a_kill_kept_from_its_name_is_no_loss(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    log = served(config, last=20, acknowledged=20)
    whole = log.read_bytes()
    started(config)
    (newest,) = (config.state_dir / "snapshots").glob("*")
    newest.rename(newest.with_name("head.partial"))
    for path in (config.state_dir / "receipts").iterdir():
        path.unlink()
    log.write_bytes(whole)
    (config.state_dir / "commits").unlink()
    assert started(config).head.step == 20


def test_nothing_is_removed_before_all_was_judged(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    log = served(config, last=5, acknowledged=5)
    data = log.read_bytes()
    log.write_bytes(data[:-3])
    aside = config.state_dir / LOST_FOLDER / "3" / "receipts" / "updates.jsonl.partial"
    aside.parent.mkdir(parents=True)
    partials = [
        config.state_dir / name for name in ("quarantine.jsonl.partial", "policies/a.partial", "snapshots/head.partial")
    ]
    for path in (*partials, aside):
        path.write_bytes(b"unfinished")
    with pytest.raises(StateUnusable):
        started(config)
    assert find_losses(config, policy(), 7.0)
    assert all(path.exists() for path in (*partials, aside))
    log.write_bytes(data)
    started(config)
    assert [path.exists() for path in (*partials[:2], aside)] == [False, False, True]


def test_without_a_loss_there_is_nothing_to_accept(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    served(config, last=5, acknowledged=5)
    assert accept_losses(config, policy(), "ada", 7.0) == []
    assert started(config).head.step == 5


def quarantined(config: LearnerSettings) -> Path:
    """A state directory in which two clusters are in quarantine, after a kill."""
    started(config, registrations=1)
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        quarantine = Quarantine(config.quarantine, state.path, lambda: 0.0, lambda: 0.0, state.commits)
        for cluster in ("north", "south"):
            for _ in range(config.quarantine.rejections):
                quarantine.on_judged(cluster, Rejection.NOT_FINITE)
        registry.register("north", False, (), 0.0)
        registry.close()
    return config.state_dir / "quarantine.jsonl"


def held(config: LearnerSettings) -> int:
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        try:
            return Quarantine(config.quarantine, state.path, lambda: 0.0, lambda: 0.0, state.commits).count
        finally:
            registry.close()


@pytest.mark.parametrize("damaged", ["gone", "emptied", "flipped", "of yesterday"])
@pytest.mark.parametrize("known_by", ["commits", "the registry alone"])
def test_who_was_in_quarantine_is_not_free_because_the_record_was_damaged(
    tmp_path: Path, damaged: str, known_by: str
) -> None:
    config = learner_settings(tmp_path)
    record = quarantined(config)
    assert held(config) == 2
    whole = record.read_bytes()
    if damaged == "of yesterday":
        with StateDir(config.state_dir) as state:
            Quarantine(config.quarantine, state.path, lambda: 0.0, lambda: 0.0, state.commits).release("north")
        started(config, registrations=1)
        record.write_bytes(whole)
    elif damaged == "gone":
        record.unlink()
    else:
        record.write_bytes(whole.replace(b"0", b"1", 1) if damaged == "flipped" else b"")
    if known_by != "commits":
        (config.state_dir / "commits").unlink()
    for _ in range(2):
        with pytest.raises(StateUnusable, match=r"quarantine\.jsonl: .*accept-loss"):
            held(config)
    (line,) = find_losses(config, policy(), 7.0)
    assert "quarantine.jsonl" in line
    assert accept_losses(config, policy(), "ada", 7.0) == [line]
    assert held(config) == (2 if damaged == "of yesterday" else 0)
    assert (config.state_dir / LOST_FOLDER / "7" / "quarantine.jsonl").exists() == (damaged != "gone")
    assert find_losses(config, policy(), 8.0) == []


def signed_fleet(config: LearnerSettings, rotations: int = 0) -> tuple[str, int]:
    """Open registry and keys as a start does; the fleet's name, and how many versions are signed for it."""
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        try:
            registry.signing = Signing(state.path, 60.0, lambda: 1000.0, state.commits)
            recover(state, registry, config, policy(), 0.0)
            for _ in range(rotations):
                registry.signing.rotate(KeyRole.ROOT)
                registry.register("north", False, (), 0.0)
            registry.sign_versions()
            sound = sum(
                registry.signing.is_sound(row) for row in registry.database.session().scalars(select(VersionRow))
            )
        finally:
            registry.close()
    return registry.signing.root.fleet, sound


def test_what_was_moved_aside_is_not_replaced_by_the_next_loss_of_the_same_second(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    record = quarantined(config)
    for text in ("one", "two", "three"):
        record.write_text(text)
        assert accept_losses(config, policy(), "ada", 7.0)
    kept = {path.parent.name: path.read_text() for path in (config.state_dir / LOST_FOLDER).rglob("quarantine.jsonl")}
    assert kept == {"7": "one", "7-2": "two", "7-3": "three"}


@pytest.mark.parametrize("how", ["gone", "emptied"])
@pytest.mark.parametrize("known_by", ["commits", "the log alone"])
def test_a_registry_that_is_gone_is_not_said_to_be_acceptable(tmp_path: Path, how: str, known_by: str) -> None:
    config = learner_settings(tmp_path)
    served(config, last=5, acknowledged=5)
    registry = config.state_dir / "registry.sqlite"
    registry.unlink()
    if how == "emptied":
        registry.touch()
    if known_by != "commits":
        (config.state_dir / "commits").unlink()
    for poll in (
        lambda: started(config),
        lambda: find_losses(config, policy(), 7.0),
        lambda: accept_losses(config, policy(), "ada", 7.0),
        lambda: started(config),
    ):
        with pytest.raises(StateUnusable, match=r"registry\.sqlite.* (backup|copy)") as caught:
            poll()
        assert "accept" not in str(caught.value)


def identified(config: LearnerSettings) -> set[str]:
    """Open registry and identities as a start does; whose certificates are known."""
    with StateDir(config.state_dir) as state, contextlib.ExitStack() as opened:
        registry = Registry(state.path, state.commits)
        thread = opened.enter_context(contextlib.closing(RegistryThread(registry)))
        opening = open_identities(config, ExternalCredentials(), state.path, thread, LearnerTelemetry(), lambda: 1000.0)
        found = opened.enter_context(opening)
        recover(state, registry, config, policy(), 0.0)
        registry.register("north", False, (), 0.0)
        known = found.identity.certificates
        assert known is not None
        return {certificate.name for certificate in known.known.values()}


@pytest.mark.parametrize("known_by", ["commits", "the registry alone"])
@pytest.mark.parametrize("lost", ["the book", "all of the book", "the folder"])
def test_a_lost_book_of_identities_is_begun_anew_with_an_administrator(
    tmp_path: Path, lost: str, known_by: str
) -> None:
    config = learner_settings(tmp_path, identity={})
    for _ in range(2):
        assert identified(config) == {ADMINISTRATOR}
    folder = config.state_dir / "identity"
    earlier = (folder / "admin.pem").read_bytes()
    if lost == "the folder":
        shutil.rmtree(folder)
    elif lost == "the book":
        (folder / "identities.sqlite").unlink()
    else:
        (folder / "identities.sqlite").write_bytes(b"")
    if known_by != "commits":
        (config.state_dir / "commits").unlink()
    listed = find_losses(config, policy(), 7.0)  # before any start
    assert folder.is_dir() == (lost != "the folder")
    assert [line for line in listed if "identities.sqlite: gone or emptied" in line] == listed != []
    for _ in range(2):
        with pytest.raises(StateUnusable, match=r"identities\.sqlite: gone or emptied.*accept-loss"):
            identified(config)
    assert accept_losses(config, policy(), "ada", 7.0) == listed
    aside = config.state_dir / LOST_FOLDER / "7" / "identity" / "admin.pem"
    assert (aside.read_bytes() if aside.exists() else None) == (None if lost == "the folder" else earlier)
    assert identified(config) == {ADMINISTRATOR}
    assert find_losses(config, policy(), 8.0) == accept_losses(config, policy(), "ada", 8.0) == []


@pytest.mark.parametrize("known_by", ["commits", "the registry alone"])
@pytest.mark.parametrize("lost", ["all", "all roots", "the newest root", "a key"])
def test_keys_that_were_lost_are_never_replaced_in_silence(tmp_path: Path, lost: str, known_by: str) -> None:
    config = learner_settings(tmp_path)
    fleet, _ = signed_fleet(config, rotations=2)
    keys = config.state_dir / "signing"
    (keys / "root.key").unlink()  # kept elsewhere
    assert signed_fleet(config) == (fleet, 1)
    if lost == "all":
        shutil.rmtree(keys)
    for path in keys.glob(
        {"all roots": "root-*", "the newest root": "root-00003*", "a key": "version.key"}.get(lost, "-")
    ):
        path.unlink()
    if known_by != "commits":
        (config.state_dir / "commits").unlink()
    for _ in range(2):
        with pytest.raises(StateUnusable, match=r"signing.*accept-loss"):
            signed_fleet(config)
    (line,) = find_losses(config, policy(), 7.0)
    assert "signing" in line
    assert accept_losses(config, policy(), "ada", 7.0) == [line]
    other, sound = signed_fleet(config)
    assert (other != fleet, sound) == (True, 1)
    assert (config.state_dir / LOST_FOLDER / "7" / "signing").is_dir() == (lost != "all")
    assert find_losses(config, policy(), 8.0) == []


def test_numbers_of_timestamps_go_on_whatever_became_of_their_file(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    signed_fleet(config)
    numbers = config.state_dir / "signing" / "timestamp.json"

    def next_number(now: float) -> int:
        with StateDir(config.state_dir) as state:
            signing = Signing(state.path, 60.0, lambda: now, state.commits)
            return timestamp(signing.timestamp("north", 1), signing.root).number

    last = next_number(5000.0)
    for damage in (
        numbers.unlink,
        lambda: numbers.write_text(""),
        lambda: numbers.write_text('{"reserved": 7}'),
        lambda: numbers.write_text('{"reserved": 99999999999999, "crc": 1}'),
    ):
        damage()
        number = next_number(10.0)  # by a clock that was set back
        assert last < number < last + 1_000_000
        last = number


def test_a_database_whose_values_cannot_be_read_is_named_and_not_gone_on_from(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    started(config, registrations=1)
    with contextlib.closing(sqlite3.connect(config.state_dir / "registry.sqlite")) as database:
        database.execute("UPDATE clusters SET job_types = 'x'")
        database.commit()
    for poll in (find_losses, lambda *about: accept_losses(*about[:2], "ada", 7.0)):
        with pytest.raises(StateUnusable, match=r"registry.sqlite: damaged.*restore it from a backup"):
            poll(config, policy(), 7.0)

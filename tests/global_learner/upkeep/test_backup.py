"""Backups of a learner that runs: they are served from, and what was damaged, or killed amid one, is no backup."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from learner_makers import applied, policy, update, write_segment
from learner_makers import settings as learner_settings
from learner_process import DEADLINE_SECONDS, LearnerProcess

from foundation.command_line import run
from foundation.locks import FileLock, FolderLock
from global_learner import cli
from global_learner.enrollment.authority import open_authority
from global_learner.errors import BadLearnerConfig, NotCopied, StateUnusable
from global_learner.loss import find_losses
from global_learner.policyctl import cli as policyctl
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.settings import LearnerSettings
from global_learner.storage.commits import LOG
from global_learner.storage.state_dir import StateDir
from global_learner.upkeep import backup, places
from global_learner.upkeep.backup import UNFINISHED, back_up
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.wire import push_request

NOW = 1_700_000_000.0


def begun(folder: Path) -> LearnerSettings:
    """A state directory that a learner was killed over: v1, a registered cluster, five updates in its log."""
    config = learner_settings(folder)
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        recover(state, registry, config, policy(), 0.0)
        registry.register("north", False, (), 0.0)
        registry.note("ada", "loss-accepted", "state", "for the sake of a line", 0.0)
        registry.close()
        state.commits.committed(LOG, 5)
    write_segment(config.state_dir / "log", 1, [applied(step) for step in range(1, 6)])
    return config


def taken(config: LearnerSettings, target: Path) -> backup.Backup:
    return back_up(config, policy(), target, lambda: NOW)


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def pushed(learner: LearnerProcess, numbers: range, enough: threading.Event, acknowledged: list[int]) -> None:
    with learner.channel() as channel:
        stub = rpc.FleetStub(channel)
        for number in numbers:
            if enough.is_set():
                return
            reply = stub.Push(push_request(update(number), want_weights=False), timeout=DEADLINE_SECONDS)
            assert reply.head_step == number
            acknowledged.append(number)


@pytest.mark.heavy
def test_backups_amid_pushes_are_served_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = LearnerProcess(tmp_path, durability={"snapshot_every_steps": 7}, publish={"every_steps": 5})
    enough, acknowledged = threading.Event(), list[int]()
    before = []
    try:
        learner.start()
        with learner.channel() as channel:
            rpc.FleetStub(channel).Register(pb.RegisterRequest(cluster="north"), timeout=DEADLINE_SECONDS)
        pushing = threading.Thread(target=pushed, args=(learner, range(1, 100_000), enough, acknowledged))
        pushing.start()
        for number in range(4):
            before.append(len(acknowledged))
            command = ["backup", str(tmp_path / f"copy-{number}"), "--config", str(learner.config)]
            assert run(cli.app, "global-learner", command) == 0, capsys.readouterr().err
            assert "lines of audit that hold" in capsys.readouterr().out
        command = ["backup", str(tmp_path / "copy-of-a-program"), "--config", str(learner.config), "-o", "json"]
        assert run(cli.app, "global-learner", command) == 0, capsys.readouterr().err
        facts = json.loads(capsys.readouterr().out)
        assert facts["folder"] == command[1]
        assert facts["head_step"] >= before[-1]
        assert facts["size_bytes"] > facts["files"] > 0
        enough.set()
        pushing.join(DEADLINE_SECONDS)
        learner.kill()
        last = len(acknowledged)
        for number, step in enumerate(before):
            assert find_losses(learner_settings(tmp_path, state_dir=tmp_path / f"copy-{number}"), policy(), NOW) == []
            shutil.rmtree(learner.state_dir)
            shutil.copytree(tmp_path / f"copy-{number}", learner.state_dir)
            learner.start()
            found = learner.fleet()
            assert step <= found.head_step <= last
            assert found.clusters[0].updates_accepted == found.head_step
            monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)
            assert run(policyctl.app, "policyctl", ["audit", "verify"]) == 0
            assert run(policyctl.app, "policyctl", ["version", "verify"]) == 0
            learner.kill()
    finally:
        enough.set()
        learner.close()


def test_a_backup_of_a_killed_learner_has_what_its_log_has(tmp_path: Path) -> None:
    config = begun(tmp_path)
    files = files_of(config.state_dir)
    found = taken(config, tmp_path / "copy")
    assert (found.head_step, found.version) == (5, 1)
    assert found.audit_lines == 1
    left = {"lock", "commits"}
    assert set(files_of(tmp_path / "copy")) - left == set(files) - left
    assert not (tmp_path / "copy.partial").exists()
    for path in (tmp_path / "copy").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert len(files_of(tmp_path / "copy")) == found.files


@pytest.mark.parametrize(
    "name", ["commits", "registry.sqlite", "log/updates-*.log", "policies/*.safetensors", "aggregation.json"]
)
def test_damage_to_a_backup_is_found_as_in_what_it_was_made_of(tmp_path: Path, name: str) -> None:
    config = begun(tmp_path)
    taken(config, tmp_path / "copy")
    copied = config.model_copy(update={"state_dir": tmp_path / "copy"})
    assert find_losses(copied, policy(), NOW) == []
    (path,) = (tmp_path / "copy").glob(name)
    if name == "commits":  # the stores are checked against each other without it
        path.unlink()
        assert find_losses(copied, policy(), NOW) == []
        return
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    if name in ("registry.sqlite", "policies/*.safetensors"):
        with pytest.raises(StateUnusable, match=path.name):
            find_losses(copied, policy(), NOW)
    else:
        assert any(path.name in line or path.parent.name in line for line in find_losses(copied, policy(), NOW))


@pytest.mark.parametrize("name", ["registry.sqlite", "log/updates-*.log", "policies/*.safetensors"])
def test_what_is_damaged_is_not_backed_up(tmp_path: Path, name: str) -> None:
    config = begun(tmp_path)
    (path,) = config.state_dir.glob(name)
    data = bytearray(path.read_bytes())
    data[: len(data) // 2] = bytes(len(data) // 2)
    path.write_bytes(data)
    with pytest.raises(StateUnusable, match=r"accept-loss") as caught:
        taken(config, tmp_path / "copy")
    assert "\n" not in str(caught.value)
    assert "partial" not in str(caught.value)
    assert not list(tmp_path.glob("copy*"))


def test_one_bit_of_a_database_and_one_that_fell_back_are_no_backup(tmp_path: Path) -> None:
    config = begun(tmp_path)
    database = config.state_dir / "registry.sqlite"
    before = database.read_bytes()
    damaged = bytearray(before)
    place = before.index(b"for the sake of a line")
    damaged[place] ^= 1
    database.write_bytes(damaged)
    with pytest.raises(StateUnusable, match=r"registry\.sqlite: damaged, or changed by somebody else"):
        taken(config, tmp_path / "copy")
    database.write_bytes(before)
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        registry.register("south", False, (), 0.0)
        registry.close()
    assert taken(config, tmp_path / "whole").version == 1
    database.write_bytes(before)
    with pytest.raises(StateUnusable, match=r"registry\.sqlite: it has come to change \d+, and \d+ were"):
        taken(config, tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


def test_an_authority_that_no_start_would_take_and_a_link_to_nothing_are_no_backup(tmp_path: Path) -> None:
    config = begun(tmp_path)
    identity = config.state_dir / "identity"
    identity.mkdir(mode=0o700, exist_ok=True)
    open_authority(identity, NOW)
    taken(config, tmp_path / "whole")
    (identity / "ca.key").write_bytes(b"")
    with pytest.raises(StateUnusable, match=r"ca\.key"):
        taken(config, tmp_path / "copy")
    open_authority_anew(identity)
    (config.state_dir / "policies" / "v9.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(StateUnusable, match=r"v9\.safetensors: leads to .*gone, which is not there"):
        taken(config, tmp_path / "copy")


def open_authority_anew(identity: Path) -> None:
    for name in ("ca.key", "ca.pem"):
        (identity / name).unlink()
    open_authority(identity, NOW)


def test_what_bears_an_unfinished_backups_name_is_not_written_to(tmp_path: Path) -> None:
    config = begun(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "copy.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadLearnerConfig, match=r"copy\.partial: is there, and not a folder of this user's"):
        taken(config, tmp_path / "copy")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.heavy
@pytest.mark.parametrize("at", ["take", "drop_unfinished", "make_durable", "sync_folder"])
def test_a_killed_backup_leaves_nothing_that_looks_whole(tmp_path: Path, at: str) -> None:
    config = begun(tmp_path)
    (tmp_path / "learner.yaml").write_text(yaml.safe_dump({"state_dir": "state", "initial_policy": "v1.safetensors"}))
    script = (
        "import os, pathlib, signal, sys\n"
        "from global_learner.upkeep import backup\n"
        "from global_learner import cli\n"
        f"where = backup.StateCopy if {at!r} in vars(backup.StateCopy) else backup\n"
        # Folders are synced before, too: of those that are not whole yet.
        f"early = pathlib.Path('copy.partial', backup.UNFINISHED).exists if {at!r} == 'sync_folder' else bool\n"
        f"setattr(where, {at!r}, lambda *_: early() or os.kill(os.getpid(), signal.SIGKILL))\n"
        "sys.argv = ['global-learner', 'backup', 'copy', '--config', 'learner.yaml']\n"
        "cli.main()\n"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=DEADLINE_SECONDS, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert [path.name for path in tmp_path.glob("copy*")] == ["copy.partial"]
    if at == "sync_folder":  # between its last byte and its name: it is whole, and nobody was told
        (tmp_path / "copy.partial" / UNFINISHED).touch()
    assert (tmp_path / "copy.partial" / UNFINISHED).exists()
    assert taken(config, tmp_path / "copy").head_step == 5
    assert [path.name for path in tmp_path.glob("copy*")] == ["copy"]


def test_a_target_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    config = begun(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "mine").touch()
    for target, says in (
        ("full", "not empty"),
        ("file", "is no folder"),
        ("link", "is no folder"),
        ("nowhere/copy", "there is no folder"),
        ("file/copy", "there is no folder"),
        ("state/copy", "lies in the state directory itself"),
        ("state", "not empty"),
        ("n" * 300, "cannot be"),
        ("a\0b", "cannot be"),
        ("other", "no unfinished backup"),
    ):
        with pytest.raises(BadLearnerConfig, match=says):
            taken(config, tmp_path / target)
    assert (tmp_path / "other.partial" / "mine").exists()
    (tmp_path / "empty").mkdir()
    assert taken(config, tmp_path / "empty").head_step == 5


def test_what_is_no_state_or_somebody_elses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = learner_settings(tmp_path)
    with pytest.raises(BadLearnerConfig, match="holds no learner's state"):
        taken(config, tmp_path / "copy")
    begun(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(places.pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="fedl2"))
    with pytest.raises(BadLearnerConfig, match="sudo -u fedl2"):
        taken(config, tmp_path / "copy")
    monkeypatch.setattr(places.pwd, "getpwuid", {}.__getitem__)
    with pytest.raises(BadLearnerConfig, match="sudo -u #"):
        taken(config, tmp_path / "copy")


@pytest.mark.heavy
def test_two_backups_at_once_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "_CUT_SECONDS", 1.0)
    config = begun(tmp_path)
    lock = FolderLock(config.state_dir / "log")
    try:
        with pytest.raises(NotCopied, match="another backup is copying it"):
            taken(config, tmp_path / "copy")
    finally:
        lock.release()
    (tmp_path / "copy.partial").mkdir()
    unfinished = FileLock(tmp_path / "copy.partial" / UNFINISHED)
    with unfinished, pytest.raises(NotCopied, match=rf"process {os.getpid()} writes a backup there"):
        taken(config, tmp_path / "copy")
    assert taken(config, tmp_path / "copy").head_step == 5


def test_databases_that_never_fit_are_said(tmp_path: Path) -> None:
    config = begun(tmp_path)
    with closing(sqlite3.connect(config.state_dir / "registry.sqlite")) as connection:
        connection.execute("INSERT OR REPLACE INTO commits (store, count) VALUES ('registry', 3)")
        connection.execute("INSERT OR REPLACE INTO commits (store, count) VALUES ('beliefs', 9)")
        connection.commit()
    with closing(sqlite3.connect(config.state_dir / "beliefs.sqlite")) as connection:
        connection.execute("CREATE TABLE commits (store TEXT PRIMARY KEY, count BIGINT)")
        connection.execute("INSERT INTO commits VALUES ('beliefs', 8)")
        connection.commit()
    with pytest.raises(NotCopied, match="one had seen more of another"):
        taken(config, tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = begun(tmp_path)

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "make_durable", full)
    with pytest.raises(NotCopied, match=r"No space left on device.*free space"):
        taken(config, tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


def test_a_shared_state_is_refused_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "learner.yaml"
    content = {"state_dir": "state", "initial_policy": "set", "database": "postgresql://fleet@127.0.0.1/fleet"}
    config.write_text(yaml.safe_dump(content))
    assert run(cli.app, "global-learner", ["backup", str(tmp_path / "copy"), "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pg_dump" in said

"""`global-learner` and `policyctl` as people start them: what goes wrong is one line and an exit code."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from learner_makers import SPEC, policy
from learner_process import LearnerProgram

from foundation.command_line import run
from foundation.locks import FileLock
from global_learner import cli
from global_learner.policyctl import cli as policyctl
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.settings import read_settings
from global_learner.storage.state_dir import StateDir
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.policy_file import write_policy_file
from policy_net.exchange.spec import PolicySpec
from policy_net.exchange.wire import push_request


def good(folder: Path) -> dict:
    write_policy_file(folder / "v1.safetensors", policy())
    return {
        "state_dir": "state",
        "initial_policy": "v1.safetensors",
        "listen": "127.0.0.1:0",
        "port_file": "ports.json",
        "telemetry": {"http_listen": None},
    }


def serve(folder: Path, content: dict | str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    config = folder / "learner.yaml"
    config.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    code = run(cli.app, "global-learner", ["serve", "--config", str(config)])
    return code, capsys.readouterr().err


UPSTREAM = {"address": "127.0.0.1:1", "name": "east"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"learning_rat": 1}, "unknown setting learning_rat"),
        ({"optimizer": {"learning_rate": -1}}, "setting optimizer.learning_rate = -1"),
        ({"state_dir": None}, "setting state_dir"),
        ({"listen": "somewhere"}, "HOST:PORT"),
        ({"listen": "0.0.0.0:7070"}, "a bare name is not believed"),
        ({"port_file": None}, "nobody could find it"),
        ({"port_file": "nowhere/ports.json"}, "setting port_file: "),
        ({"port_file": "."}, "setting port_file: "),
        ({"initial_policy": "nowhere.safetensors"}, "cannot be read"),
        ({"initial_policy": "learner.yaml"}, "no policy file"),
        ({"initial_policy": "sett"}, "setting initial_policy = 'sett': there is no such file in"),
        ({"initial_policy": "Set"}, "did you mean set, which ships with fedl2?"),
        ({"state_dir": "v1.safetensors"}, "cannot be used"),
        ({"telemetry": {"http_listen": "192.0.2.1:1"}}, "http_listen"),
        ({"tls": {"certificate_file": "no.pem", "key_file": "no.key"}}, "setting tls: "),
        ({"tls": {"certificate_file": "learner.yaml", "key_file": "learner.yaml"}}, "holds no whole certificate (PEM)"),
        ({"identity": {}, "tls": {"certificate_file": "a", "key_file": "b"}}, "two ways to the same end"),
        ({"identity": {}, "listen": "0.0.0.0:7070"}, "set identity.names"),
        ({"identity": {"enroll_port": 70000}}, "identity.enroll_port"),
        ({"identity": {"names": ["learner:7070"]}}, "without a port"),
        ({"identity": {"ca_key_file": "ca.key"}}, "belong together"),
        ({"identity": {"ca_key_file": "a.key", "ca_certificate_file": "a.pem"}}, "a.pem cannot be read"),
        ({"identity": {"certificate_days": 0}}, "identity.certificate_days"),
        ({"upstream": {"address": "127.0.0.1:1"}}, "setting upstream.name"),
        ({"upstream": {"address": "192.0.2.1:1", "name": "east"}}, "set enrollment_file"),
        ({"upstream": {"address": "127.0.0.1:0", "name": "east"}}, "is this learner itself"),
        ({"upstream": UPSTREAM, "publish": {"auto_assign": True}}, "set publish.auto_assign there"),
        ({"upstream": UPSTREAM, "optimizer": {"learning_rate": 1e-3}}, "a region takes no steps"),
        ({"upstream": UPSTREAM, "database": "postgresql://fleet@127.0.0.1/fleet"}, "a region with a standby"),
        ({"optimizer": {"units": "parsecs"}}, "setting optimizer.units"),
        ({"optimizer": {"units": "spreads"}}, "optimizer.units: spreads are of set policies, and this is dl2"),
        (
            {"initial_policy": "set", "optimizer": {"units": "spreads"}, "aggregation": {"mode": "rounds"}},
            "in mode rounds the strategy takes the steps",
        ),
        ({"initial_policy": "dl2", "aggregation": {"mode": "rounds"}}, "this dl2 policy has no critic to learn from"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, capsys, changes, says) -> None:
    code, error = serve(tmp_path, {**good(tmp_path), **changes}, capsys)
    line = error.splitlines()[-1]
    assert code == 2
    assert says in line
    assert "Traceback" not in error
    assert [line] == error.splitlines()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("text", "says"), [("a: [", "line 1: no valid YAML"), ("", "holds no settings"), ("[]", "no set")]
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, capsys, text: str, says: str) -> None:
    code, error = serve(tmp_path, text, capsys)
    assert (code, len(error.splitlines())) == (2, 1)
    assert says in error


def test_a_missing_configuration_is_refused(tmp_path: Path, capsys) -> None:
    code = run(cli.app, "global-learner", ["serve", "--config", str(tmp_path / "none.yaml")])
    assert code == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err


def test_a_cut_policy_file_leaves_no_state_behind(tmp_path: Path, capsys) -> None:
    content = good(tmp_path)
    path = tmp_path / "v1.safetensors"
    path.write_bytes(path.read_bytes()[:200])
    code, error = serve(tmp_path, content, capsys)
    assert code == 2
    assert "v1.safetensors" in error
    assert not (tmp_path / "state").exists()


def loaded_by_a_refusal(words: list[str]) -> tuple[int, str, list[str]]:
    """Exit code and line of a command in a process of its own, and which of the slow libraries it has loaded."""
    script = (
        "import sys; from foundation.command_line import run; from global_learner import cli;"
        f"code = run(cli.app, 'global-learner', {words!r});"
        "print(code, *(name for name in ('torch', 'sqlalchemy', 'scipy', 'grpc') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    code, *loaded = done.stdout.splitlines()[-1].split()
    return int(code), done.stderr, loaded


@pytest.mark.parametrize("held", ["state directory", "port"])
def test_a_second_learner_is_refused_before_what_serves_is_loaded(tmp_path: Path, held: str) -> None:
    config, state = tmp_path / "learner.yaml", tmp_path / "state"
    state.mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config.write_text(yaml.safe_dump({**good(tmp_path), "listen": f"127.0.0.1:{port}"}))
        with FileLock(state / "lock") if held == "state directory" else contextlib.nullcontext():
            code, said, loaded = loaded_by_a_refusal(["serve", "--config", str(config)])
    assert loaded == []
    assert (code, said.count("\n")) == (2, 1)
    if held == "port":
        assert f"listen 127.0.0.1:{port}: cannot be listened on" in said
    else:
        assert f"state_dir {state}: held by another learner (process {os.getpid()}); end it" in said


def test_a_backups_target_is_looked_at_before_what_copies_is_loaded(tmp_path: Path) -> None:
    config, target = tmp_path / "learner.yaml", tmp_path / "backup"
    config.write_text(yaml.safe_dump(good(tmp_path)))
    target.mkdir()
    (target / "mine").touch()
    code, said, loaded = loaded_by_a_refusal(["backup", str(target), "--config", str(config)])
    assert (code, loaded) == (2, [])
    assert f"{target}: is there and not empty" in said


def test_a_configuration_is_checked_without_what_learns(tmp_path: Path) -> None:
    config = tmp_path / "learner.yaml"
    config.write_text(yaml.safe_dump(good(tmp_path)))
    code, said, loaded = loaded_by_a_refusal(["serve", "--check", "--config", str(config)])
    assert (code, said) == (0, "")
    assert not {"torch", "scipy"} & {*loaded}


def test_a_port_in_use_is_named(tmp_path: Path, capsys) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, error = serve(tmp_path, {**good(tmp_path), "listen": address}, capsys)
        assert (code, len(error.splitlines())) == (2, 1)
        assert f"listen {address}" in error
        code, error = serve(tmp_path, {**good(tmp_path), "telemetry": {"http_listen": address}}, capsys)
        assert code == 2
        assert f"telemetry.http_listen {address}" in error


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"identity": {"enroll_port": 7090}}, "listen and identity.enroll_port have the same port, 7090"),
        ({"telemetry": {"http_listen": "127.0.0.1:7090"}}, "listen and telemetry.http_listen have the same port, 7090"),
        ({"telemetry": {"http_listen": "0.0.0.0:7090"}}, "listen and telemetry.http_listen have the same port, 7090"),
        (
            {"identity": {"enroll_port": 7091}, "telemetry": {"http_listen": "127.0.0.1:7091"}},
            "identity.enroll_port and telemetry.http_listen have the same port, 7091",
        ),
    ],
)
def test_two_servers_of_a_learner_on_one_port_are_refused_before_anything_is_begun(
    tmp_path: Path, capfd, changes: dict, says: str
) -> None:
    code, error = serve(tmp_path, {**good(tmp_path), "listen": "127.0.0.1:7090", **changes}, capfd)
    assert (code, len(error.splitlines())) == (2, 1), "gRPC has lines of its own, which no Python stream sees"
    assert f"{says}: name another one for either" in error
    assert not (tmp_path / "state").exists()


def test_servers_at_unlike_addresses_may_have_one_port(tmp_path: Path) -> None:
    config = tmp_path / "learner.yaml"
    changes = {"listen": "127.0.0.1:7090", "telemetry": {"http_listen": "127.0.0.2:7090"}}
    config.write_text(yaml.safe_dump({**good(tmp_path), **changes}))
    assert read_settings(config).telemetry.http_listen == "127.0.0.2:7090"


def test_policyctl_without_a_learner_ends_with_3(capsys) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening: nobody answers here
        address = f"127.0.0.1:{held.getsockname()[1]}"
        for arguments in (["fleet"], ["version", "list"], ["version", "show", "v1"]):
            code = run(policyctl.app, "policyctl", [*arguments, "--learner", address, "--timeout", "2"])
            error = capsys.readouterr().err
            assert (code, len(error.splitlines())) == (3, 1)
            assert address in error


@pytest.mark.heavy
def test_a_learner_serves_is_asked_and_ends_on_sigterm(tmp_path: Path, capsys, monkeypatch) -> None:
    learner = LearnerProgram(tmp_path, publish={"every_steps": 2})
    learner.start()
    try:
        with learner.channel() as channel:
            fleet = rpc.FleetStub(channel)
            fleet.Register(pb.RegisterRequest(cluster="north"), timeout=60)
            from learner_makers import update

            for n in (1, 2):
                fleet.Push(push_request(update(n), want_weights=False), timeout=60)
        monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)

        def asked(*arguments: str):
            assert run(policyctl.app, "policyctl", [*arguments, "-o", "json"]) == 0
            return json.loads(capsys.readouterr().out)

        found = asked("fleet")
        assert (found["head_step"], found["clusters"][0]["updates_accepted"]) == (2, 2)
        while len(versions := asked("version", "list")) < 2:
            pass
        assert [card["name"] for card in versions] == ["v1", "v2"]
        shown = asked("version", "show", "latest")
        assert (shown["version"], PolicySpec(**shown["spec"])) == (2, SPEC)
        assert asked("version", "show", "v1")["digest"] == versions[0]["digest"]
        assert run(policyctl.app, "policyctl", ["version", "show", "v9"]) == 2
        assert run(policyctl.app, "policyctl", ["version", "show", "nine"]) == 2
        assert run(policyctl.app, "policyctl", ["fleet"]) == 0
        assert "north" in capsys.readouterr().out

        def page(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{learner.http_port}{path}", timeout=60) as answer:
                return answer.read().decode()

        assert (page("/healthz"), page("/readyz")) == ("ok\n", "ready\n")
        assert "fedl2_learner_head_steps 2.0" in page("/metrics")
        assert 'fedl2_learner_updates_total{outcome="applied"} 2.0' in page("/metrics")
        assert learner.end(signal.SIGTERM) == 0
    finally:
        learner.close()
    lines = [json.loads(line) for line in learner.log.read_text().splitlines()]
    updates = [line for line in lines if line["event"] == "update-answered"]
    assert [(line["sequence"], line["outcome"], line["head_step"]) for line in updates] == [
        (1, "applied", 1),
        (2, "applied", 2),
    ]
    assert list((tmp_path / "state" / "snapshots").iterdir())


@pytest.mark.parametrize("url", ["fleet", "sqlite:///fleet", "postgresql://db.example.org"])
def test_what_is_no_url_of_a_database_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
    code, said = serve(tmp_path, {**good(tmp_path), "database": url}, capsys)
    assert code == 2
    assert said.count("\n") == 1
    assert "setting database" in said
    assert "postgresql://USER@HOST:PORT/DATABASE" in said


def test_a_loss_of_two_learners_is_not_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "learner.yaml"
    config.write_text(yaml.safe_dump({**good(tmp_path), "database": "postgresql://fleet@127.0.0.1/fleet"}))
    assert run(cli.app, "global-learner", ["accept-loss", "--config", str(config), "--yes"]) == 2
    assert "from backups of one moment" in capsys.readouterr().err


@pytest.mark.parametrize("accepted", [False, True])
def test_losses_are_told_to_people_and_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    lost = ["update 3 is lost", "update 4, too"]
    for name in ("find_losses", "accept_losses"):
        monkeypatch.setattr(f"global_learner.loss.{name}", lambda *_: lost)
    config = tmp_path / "learner.yaml"
    config.write_text(yaml.safe_dump(good(tmp_path)))
    (tmp_path / "state").mkdir()
    command = ["accept-loss", "--config", str(config), *(["--yes"] if accepted else [])]
    assert run(cli.app, "global-learner", command) == 0
    said = capsys.readouterr().out.splitlines()
    assert (said[:2], len(said)) == (lost, 3)
    assert said[2].startswith("accepted: start the learner" if accepted else "nothing was changed")
    assert run(cli.app, "global-learner", [*command, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"losses": lost, "accepted": accepted}
    assert run(cli.app, "global-learner", [*command, "-o", "csv"]) == 0
    assert capsys.readouterr().out == f'lost,accepted\nupdate 3 is lost,{accepted}\n"update 4, too",{accepted}\n'


def test_a_loss_is_accepted_by_a_user_without_a_name_as_in_a_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1_000_680_000)
    monkeypatch.setattr("global_learner.loss.accept_losses", lambda _settings, _policy, who, _now: [who])
    config = tmp_path / "learner.yaml"
    config.write_text(yaml.safe_dump(good(tmp_path)))
    (tmp_path / "state").mkdir()
    assert run(cli.app, "global-learner", ["accept-loss", "--config", str(config), "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "#1000680000"


def checked(folder: Path, content: dict, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    config = folder / "learner.yaml"
    config.write_text(yaml.safe_dump(content))
    code = run(cli.app, "global-learner", ["serve", "--check", "--config", str(config)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_sound_configuration_is_checked_and_nothing_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:  # as by the learner that runs on it
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        content = {**good(tmp_path), "listen": f"127.0.0.1:{taken.getsockname()[1]}"}
        before = sorted(tmp_path.iterdir())
        code, out, err = checked(tmp_path, content, capsys)
    assert (code, err) == (0, "")
    assert "which will be made" in out
    assert "can be served; nothing was started" in out
    assert set(tmp_path.iterdir()) - set(before) == {tmp_path / "learner.yaml"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"learning_rat": 1}, "unknown setting learning_rat"),
        ({"initial_policy": "nowhere.safetensors"}, "cannot be read"),
        ({"initial_policy": "learner.yaml"}, "no policy file"),
        ({"port_file": "nowhere/ports.json"}, "setting port_file: "),
        ({"state_dir": "v1.safetensors"}, "setting state_dir: "),
        ({"state_dir": "v1.safetensors/state"}, "setting state_dir: "),
        ({"tls": {"certificate_file": "no.pem", "key_file": "no.key"}}, "setting tls: "),
        ({"optimizer": {"units": "spreads"}}, "optimizer.units: spreads are of set policies, and this is dl2"),
        ({"upstream": {**UPSTREAM, "enrollment_file": "no.enrollment"}}, "setting upstream.enrollment_file: "),
    ],
)
def test_what_a_start_would_refuse_a_check_refuses_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict, says: str
) -> None:
    code, out, err = checked(tmp_path, {**good(tmp_path), **changes}, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert not (tmp_path / "state").exists()


def test_an_agents_file_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "north.yaml"
    file.write_text("cluster: north\nstate_dir: s\nbackend: {kind: local}\npolicy: {initial: set}\n")
    assert run(cli.app, "global-learner", ["serve", "--config", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"global-learner: {file}: is an agent's file; `cluster-agent run --config` reads it\n"
    )


def test_a_lost_first_version_is_put_back_by_the_command_that_the_start_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = good(tmp_path)
    (tmp_path / "learner.yaml").write_text(yaml.safe_dump(config))
    with StateDir(tmp_path / "state") as state, contextlib.closing(Registry(state.path, state.commits)) as registry:
        recover(state, registry, read_settings(tmp_path / "learner.yaml"), policy(), 0.0)
    (file,) = (tmp_path / "state" / "policies").iterdir()
    copy = file.read_bytes()
    file.write_bytes(copy[:-1])
    write_policy_file(tmp_path / "v1.safetensors", policy(seed=9))  # another one since the fleet began
    code, said = serve(tmp_path, config, capsys)
    assert code == 2
    assert f"{file}: damaged" in said
    assert "global-learner restore-version v1 --from FILE" in said
    assert said.count("\n") == 1

    (tmp_path / "copy").write_bytes(copy)
    command = ["restore-version", "v1", "--config", str(tmp_path / "learner.yaml"), "-o", "json", "--from"]
    assert run(cli.app, "global-learner", [*command, str(tmp_path / "v1.safetensors")]) == 2
    assert "nothing was changed" in capsys.readouterr().err
    assert run(cli.app, "global-learner", [*command, str(tmp_path / "copy")]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "name": "v1", "changed": True}
    assert file.read_bytes() == copy
    with StateDir(tmp_path / "state"):
        assert run(cli.app, "global-learner", [*command, str(tmp_path / "copy")]) == 2
        assert "policyctl version restore v1 --from FILE" in capsys.readouterr().err

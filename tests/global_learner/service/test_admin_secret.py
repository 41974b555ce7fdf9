"""`global-learner admin-secret`: the administrator's file is in a Secret before the learner serves, and rules it."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.cluster import Cluster, running_cluster
from learner_makers import policy
from learner_process import LearnerProcess, answered
from postgres_server import shared_server

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl
from policy_net.exchange.policy_file import write_policy_file

pytestmark = pytest.mark.heavy
Json = dict[str, Any]
MAKES: Json = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"], "namespace": "fedl2"}
WRITES: Json = {**MAKES, "verbs": ["get", "patch"], "resourceNames": ["admin"]}
IDENTITY: Json = {"enroll_port": 0}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Path]]:
    """A cluster, and the account of a learner's pod in it, with the rights that the chart gives it."""
    with running_cluster(nodes=()) as cluster:
        cluster.make("namespaces", {"metadata": {"name": "fedl2"}})
        folder, environment = cluster.account("learner", "fedl2", [MAKES, WRITES])
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield cluster, folder


def handed(learner: LearnerProcess, account: Path) -> str:
    """What the command says for a learner's configuration."""
    words = ["admin-secret", "admin", "--config", str(learner.config), "--account", str(account)]
    done = answered("global_learner.cli", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def written(learner: LearnerProcess) -> LearnerProcess:
    """Its configuration, as the chart mounts it before it starts."""
    content = {"state_dir": "state", "initial_policy": "v1.safetensors", "listen": learner.address, **learner.sections}
    learner.config.write_text(yaml.safe_dump(content))
    return learner


def held(cluster: Cluster) -> bytes:
    secret = cluster.find("secrets", "admin", "fedl2")
    assert secret is not None
    assert list(secret["data"]) == ["admin.pem"]
    return base64.b64decode(secret["data"]["admin.pem"])


def test_whoever_has_the_secret_rules_the_learner_that_then_starts(
    account: tuple[Cluster, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, folder = account
    learner = written(LearnerProcess(tmp_path, identity=IDENTITY))
    try:
        assert "now has admin.pem" in handed(learner, folder)
        file = tmp_path / "mine.pem"
        file.touch(mode=0o600)
        file.write_bytes(held(cluster))
        learner.start()
        words = ["fleet", "--learner", learner.address, "--cert", str(file)]
        assert run(policyctl.app, "policyctl", words) == 0, capsys.readouterr().err
        assert learner.end() == 0
        assert "administrator-written" not in learner.log.read_text(), "it is the one that was handed over"
        assert ": has admin.pem" in handed(learner, folder)
        (learner.state_dir / "identity" / "admin.pem").write_text("damaged")
        before = held(cluster)
        assert "now has admin.pem" in handed(learner, folder)
        assert held(cluster) != before
    finally:
        learner.close()


def test_of_learners_that_share_a_database_either_hands_over_the_same(
    account: tuple[Cluster, Path], tmp_path: Path
) -> None:
    cluster, folder = account
    url, shared = shared_server().new_database(), str(tmp_path / "shared")
    learners = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        learner = LearnerProcess(tmp_path / name, identity=IDENTITY, database=url, state_dir=shared, lease_seconds=2.0)
        learner.state_dir = Path(shared)
        learners.append(written(learner))
    try:
        with ThreadPoolExecutor(2) as pool:
            said = list(pool.map(lambda learner: handed(learner, folder), learners))
        assert all("admin.pem" in line for line in said)
        learners[0].start()
        assert ": has admin.pem" in handed(learners[1], folder), "it does not wait for the one that is active"
        assert held(cluster) == (Path(shared) / "identity" / "admin.pem").read_bytes()
        assert learners[0].end() == 0
    finally:
        for learner in learners:
            learner.close()


def test_a_learner_that_makes_no_certificates_has_none_to_hand_over(
    account: tuple[Cluster, Path], tmp_path: Path
) -> None:
    write_policy_file(tmp_path / "v1.safetensors", policy())
    config = tmp_path / "learner.yaml"
    config.write_text(yaml.safe_dump({"state_dir": "state", "initial_policy": "v1.safetensors"}))
    done = answered(
        "global_learner.cli", "admin-secret", "admin", "--config", str(config), "--account", str(account[1])
    )
    assert done.returncode == 2
    assert "setting identity: without it the learner makes no certificates" in done.stderr
    assert not (tmp_path / "state").exists()

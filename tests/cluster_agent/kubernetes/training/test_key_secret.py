"""`cluster-agent training-key`: one key for all agents of a cluster, made once, and a line for what is in its way."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from apiserver.asked import Fault
from apiserver.cluster import Cluster, running_cluster

from cluster_agent.cli import PROGRAM, app, training_key
from foundation.command_line import run
from foundation.pod_secrets import PodSecrets

Json = dict[str, Any]
MAKES: Json = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"], "namespace": "fedl2"}
READS: Json = {**MAKES, "verbs": ["get"], "resourceNames": ["fedl2-training"]}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster(nodes=()) as found:
        found.make("namespaces", {"metadata": {"name": "fedl2"}})
        yield found


class Pod:
    """A pod whose account has some rights, and what the command says there."""

    def __init__(
        self, cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.cluster, self.out = cluster, folder / "key"
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def ask(self, *rules: Json) -> tuple[int, str]:
        account, environment = self.cluster.account("agent", "fedl2", rules)
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)
        words = ["training-key", "--secret", "fedl2-training", "--out", str(self.out), "--account", str(account)]
        code = run(app, PROGRAM, words)
        return code, self._capsys.readouterr().err.strip()

    def holds(self, **content: bytes) -> None:
        encoded = {name: base64.b64encode(value).decode() for name, value in content.items()}
        metadata = {"name": "fedl2-training", "namespace": "fedl2"}
        self.cluster.make("secrets", {"metadata": metadata, "data": encoded})


@pytest.fixture
def pod(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Pod:
    return Pod(cluster, tmp_path, capsys, monkeypatch)


def test_what_is_there_is_the_key_to_the_last_byte(pod: Pod) -> None:
    pod.holds(key=b"\0 bytes of a kind that no text has \xff")
    assert pod.ask(READS) == (0, "")
    assert pod.out.read_bytes() == b"\0 bytes of a kind that no text has \xff"


def test_agents_that_begin_at_once_have_one_key(cluster: Cluster, tmp_path: Path) -> None:
    account, environment = cluster.account("agent", "fedl2", [MAKES, READS])
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(8) as pool:
        for name, value in environment.items():
            patch.setenv(name, value)
        outs = [tmp_path / str(number) for number in range(8)]
        list(pool.map(lambda out: training_key("fedl2-training", out, "key", account), outs))
    assert len({out.read_bytes() for out in outs}) == 1
    assert len(base64.b64decode(outs[0].read_bytes())) >= 32


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ((), "give this pod's service account the right to get it"),
        ((READS,), "give this pod's service account the right to create it"),
    ],
    ids=["reads nothing", "makes nothing"],
)
def test_a_missing_right_is_named(pod: Pod, rules: tuple[Json, ...], said: str) -> None:
    code, line = pod.ask(*rules)
    assert code == 1
    assert line.startswith(f"{PROGRAM}: secret fedl2-training in namespace fedl2: 403, ")
    assert line.endswith(said)
    assert not pod.out.exists()


def test_a_secret_without_the_key_is_left_alone_and_said(pod: Pod) -> None:
    pod.holds(token=b"x" * 32)
    code, line = pod.ask(MAKES, READS)
    assert code == 2
    assert "has no key, but token; put the key of the jobs that run there" in line
    assert not pod.out.exists()


def test_a_server_that_is_not_ready_is_waited_for(pod: Pod) -> None:
    pod.cluster.server.faults = lambda asked: Fault(503) if asked.user == "agent" else None
    code, line = pod.ask(MAKES, READS)
    assert (code, line.endswith("come again")) == (3, True)
    pod.cluster.server.faults = lambda asked: None
    assert pod.ask(MAKES, READS) == (0, "")


def test_outside_of_a_pod_one_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["training-key", "--secret", "a", "--out", str(tmp_path / "key"), "--account", str(tmp_path)]
    assert run(app, PROGRAM, words) == 2
    assert "no service account can be used here" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(pod: Pod) -> None:
    pod.holds(key=b"x" * 32)
    pod.out = pod.out / "nowhere"
    pod.out.parent.touch()
    code, line = pod.ask(READS)
    assert (code, "cannot be written" in line) == (2, True)


@pytest.mark.parametrize("words", [["--secret", "../pods/a"], ["--secret", "a", "--key", "a/b"], ["--secret", ""]])
def test_a_name_that_nothing_can_have_is_refused_before_anybody_is_asked(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, PROGRAM, ["training-key", *words, "--out", str(tmp_path / "key")]) == 2
    assert "can have this name" in capsys.readouterr().err


def test_what_is_put_changes_only_what_differs(cluster: Cluster) -> None:
    rules = [MAKES, {**READS, "verbs": ["get", "patch"]}]
    there = PodSecrets(*cluster.account("agent", "fedl2", rules))
    assert there.put("fedl2-training", {"a": b"1"})
    assert not there.put("fedl2-training", {"a": b"1"})
    assert there.put("fedl2-training", {"b": b"2"})
    assert there.put("fedl2-training", {"a": b"3"})
    assert there.read("fedl2-training") == {"a": b"3", "b": b"2"}

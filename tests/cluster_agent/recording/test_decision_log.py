import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
from agent_fakes import PAIRS, make_samples, make_state
from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.errors import StateDamaged
from cluster_agent.recording.decision_log import Checkpoint, DecisionLog, DecisionRecord
from cluster_agent.recording.log_reading import CURRENT, closed_files, read_log, state_of
from policy_net.domain import (
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Job,
    JobKind,
    Node,
    Resources,
    Share,
    Trigger,
)
from policy_net.exchange.state_codec import (
    decode_decision,
    decode_state,
    digest_of_json,
    encode_decision,
    encode_state,
)

amounts = st.floats(0, 1e9, allow_nan=False)
resources = st.builds(Resources, st.integers(0, 10**6), st.integers(0, 64))
allocations = st.builds(Allocation, st.integers(0, 16), st.integers(0, 16))
job_sets = st.builds(
    Job, st.text(max_size=9), st.text(max_size=9), amounts, resources, resources, amounts, amounts, amounts,
    allocations, st.integers(0, 16), st.integers(0, 16), amounts, allocations, st.sampled_from(list(JobKind)),
)  # fmt: skip
states = st.builds(
    ClusterState,
    amounts,
    st.lists(st.builds(Node, st.text(max_size=9), resources), max_size=4).map(tuple),
    st.lists(job_sets, max_size=4).map(tuple),
    amounts,
    st.sampled_from(list(CapacityMode)),
)
shares = st.lists(st.builds(Share, st.text(max_size=5), allocations), max_size=3).map(tuple)
decisions = st.builds(
    Decision,
    st.dictionaries(st.text(max_size=5), allocations, max_size=4),
    st.none() | st.dictionaries(st.text(max_size=5), shares, max_size=3),
    st.lists(st.text(max_size=5), max_size=2).map(tuple),
)


@given(states)
def test_a_state_survives_the_log_exactly(state: ClusterState) -> None:
    text = json.dumps(encode_state(state))
    assert decode_state(json.loads(text)) == state


@given(decisions)
def test_a_decision_survives_the_log_exactly(decision: Decision) -> None:
    assert decode_decision(json.loads(json.dumps(encode_decision(decision)))) == decision


def test_a_states_digest_does_not_depend_on_the_order_of_keys() -> None:
    encoded = encode_state(make_state())
    assert digest_of_json(encoded) == digest_of_json(dict(reversed(encoded.items())))
    assert digest_of_json(encoded) != digest_of_json(encode_state(make_state(time_seconds=1.0)))


def make_record(number: int = 0, **changes: object) -> DecisionRecord:
    record = DecisionRecord(
        number, 1.5e9, make_state(), Trigger.ARRIVAL, "v3", 3, 0, "abc", 7, "sample", 0.1, PAIRS, make_samples(), (),
        0.002, 0.5,
    )  # fmt: skip
    return replace(record, **changes)  # type: ignore[arg-type]


def append(log: DecisionLog, record: DecisionRecord) -> None:
    policy = {"name": record.policy, "version": record.version, "head_step": 0, "digest": record.digest}
    log.append(record, Checkpoint(record.number, 1.5e9, policy, {}, False, None, "drf", None, "1"))


def test_a_line_holds_all_that_is_needed_to_decide_again(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, 10**6, 2)
    append(log, make_record())
    log.close()
    (line,) = read_log(tmp_path / CURRENT)
    assert state_of(line) == make_state()
    assert decode_decision(line) == PAIRS
    assert (line["number"], line["version"], line["digest"], line["seed"]) == (0, 3, "abc", 7)
    assert (line["trigger"], line["mode"], line["exploration"]) == ("arrival", "sample", 0.1)
    assert line["actions"] == make_samples().actions_M.tolist()
    assert line["behaviour"] == make_samples().behaviour_M.tolist()
    assert len(line["actions"]) > 1
    assert line["previous_reward"] == 0.5


def test_a_figure_that_is_none_is_logged_as_null_and_the_line_stays_json(tmp_path: Path) -> None:
    samples = replace(make_samples(), behaviour_M=np.array([0.5, math.nan, math.inf]))
    log = DecisionLog(tmp_path, 10**6, 2)
    append(log, make_record(samples=samples, previous_reward=math.nan))
    log.close()
    (line,) = read_log(tmp_path / CURRENT)
    assert line["behaviour"] == [0.5, None, None]
    assert line["previous_reward"] is None


def test_a_changed_state_does_not_match_its_digest(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, 10**6, 2)
    append(log, make_record())
    log.close()
    (line,) = read_log(tmp_path / CURRENT)
    line["state"]["jobs"][0]["remaining_epochs"] = 1.0
    with pytest.raises(StateDamaged, match="digest"):
        state_of(line)


@given(st.integers(0, 200))
def test_a_torn_last_line_costs_only_itself(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = DecisionLog(folder, 10**6, 2)
    append(log, make_record(0))
    whole = (folder / CURRENT).stat().st_size
    append(log, make_record(1))
    log.close()
    size = (folder / CURRENT).stat().st_size
    with (folder / CURRENT).open("r+b") as stream:
        stream.truncate(whole + cut * (size - whole - 2) // 200)
    again = DecisionLog(folder, 10**6, 2)
    append(again, make_record(2))
    again.close()
    assert [line["number"] for line in read_log(folder / CURRENT)] == [0, 2]


def test_after_a_disk_that_was_full_the_log_goes_on_with_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ShortOnce(FileIO):
        full = True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            if not ShortOnce.full:
                return super().write(data)
            ShortOnce.full = False
            return super().write(data[:100])

    monkeypatch.setattr("cluster_agent.recording.decision_log.FileIO", ShortOnce)
    log = DecisionLog(tmp_path, 10**6, 2)
    with pytest.raises(OSError, match="takes no more"):
        append(log, make_record(0))
    append(log, make_record(1))
    append(log, make_record(2))
    log.close()
    assert [line["number"] for line in read_log(tmp_path / CURRENT)] == [1, 2]


def test_something_else_than_a_decision_in_the_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / CURRENT).write_text("hello\n")
    with pytest.raises(StateDamaged, match="line 1"):
        list(read_log(tmp_path / CURRENT))


def test_the_log_rotates_by_size_and_keeps_the_newest_files(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, max_bytes=2500, keep=2)
    for number in range(12):
        append(log, make_record(number))
    log.close()
    kept = [*closed_files(tmp_path), tmp_path / CURRENT]
    assert len(kept) == 3
    assert all(path.stat().st_size <= 2500 for path in kept)
    numbers = [line["number"] for path in kept for line in read_log(path)]
    assert numbers == list(range(numbers[0], 12))


def test_what_was_appended_survives_a_killed_process(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import os, pathlib, test_decision_log as t\n"
        f"log = t.DecisionLog(pathlib.Path({str(tmp_path)!r}), 10**6, 2)\n"
        "t.append(log, t.make_record(5))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert [line["number"] for line in read_log(tmp_path / CURRENT)] == [5]

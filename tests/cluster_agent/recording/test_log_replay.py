import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import SPEC, WEIGHTS, Clock, policy_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_worlds import Interval, cluster_states, live, make_tape, replayed, rewritten

from cluster_agent.active_policy import ActivePolicy, CandidateFactory, DeadlineAsker, PolicyIdentity
from cluster_agent.errors import PolicyNotKept, StateDamaged
from cluster_agent.recording.decision_log import PolicyArchive
from cluster_agent.recording.log_reading import CURRENT, closed_files, log_files, read_log
from cluster_agent.settings import PolicySettings
from policy_net.domain import ClusterState, Decision, Progress, Trigger
from policy_net.exchange.policy_file import PolicyFile, digest_of
from policy_net.exchange.state_codec import JsonObject
from policy_net.policy import policy_names
from policy_net.set_policy.planner import SetSamples
from policy_net.set_policy.policy import SetPolicy, default_set_file

NEEDS_MORE = {"oracle", "optimus-true-table", "optimus-fitted"}
"""Policies that plan on speeds which no agent has."""
POLICIES = sorted(set(policy_names()) - NEEDS_MORE)
FEW = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@st.composite
def tapes(draw: st.DrawFn) -> list[Interval]:
    intervals = []
    for number in range(draw(st.integers(1, 8))):
        state = replace(draw(cluster_states.drawn_states(6)), time_seconds=600.0 * number)
        progress = draw(st.lists(cluster_states.drawn_progress(), max_size=5))
        intervals.append((state, progress))
    return intervals


def candidate(name: str = "set", **changes: object):
    return CandidateFactory(PolicySettings(**changes)).from_name_or_file(name)


def dl2_file(folder: Path) -> str:
    path = folder / "dl2.safetensors"
    path.write_bytes(policy_bytes())
    return str(path)


@FEW
@given(tapes(), st.sampled_from(POLICIES), st.sampled_from(POLICIES), st.sampled_from([1000, 9000, 10**7]))
def test_whatever_is_logged_comes_out_the_same(
    tmp_path_factory: pytest.TempPathFactory, tape: list[Interval], policy: str, fallback: str, max_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    live(folder, tape, candidate(policy), fallback=fallback, max_bytes=max_bytes)
    result = replayed(folder)
    assert result.first is None
    assert (result.decisions, result.different, result.missing) == (len(tape), 0, 0)


@pytest.mark.parametrize("policy", ["set", "marginal", "optimus"])
def test_every_file_of_a_rotated_log_stands_for_itself(tmp_path: Path, policy: str) -> None:
    live(tmp_path, make_tape(30), candidate(policy), max_bytes=15_000)
    files = log_files(tmp_path)
    assert len(files) > 3
    counts = [replayed(path) for path in files]
    assert [result.different for result in counts] == [0] * len(files)
    assert sum(result.decisions for result in counts) == 30


@pytest.mark.parametrize(("mode", "exploration"), [("greedy", 0.0), ("sample", 0.3)])
def test_choices_and_probabilities_of_a_network_come_out_the_same(
    tmp_path: Path, mode: str, exploration: float
) -> None:
    how = PolicySettings(mode=mode, exploration=exploration, seed=4)  # type: ignore[arg-type]
    first = CandidateFactory(how).from_name_or_file(dl2_file(tmp_path))
    live(tmp_path, make_tape(12), first, settings=how)
    assert replayed(tmp_path).different == 0


def test_a_restart_and_a_new_version_go_on_from_what_was_believed(tmp_path: Path) -> None:
    shipped = default_set_file()
    data = PolicyFile(shipped.spec, shipped.weights * 0.5, {}, shipped.priors[:60]).to_bytes()
    version = CandidateFactory(PolicySettings()).from_bytes(data, PolicyIdentity("v2", version=2))

    def promote(active: ActivePolicy, number: int) -> None:
        if number == 6:
            active.propose(version)

    tape = make_tape(24)
    live(tmp_path, tape[:10], candidate(), before_each=promote)
    live(tmp_path, tape[10:], candidate())
    result = replayed(tmp_path)
    assert (result.decisions, result.different, result.checkpoints) == (24, 0, 3)
    assert result.policies == {"set": 20, "v2": 4}


class HangingPolicy:
    """A `set` policy that thinks at one decision until it is let go."""

    def __init__(self, inner: SetPolicy, hangs_at: int) -> None:
        self.inner = inner
        self.name = inner.name
        self.beliefs = inner.beliefs
        self.left = hangs_at
        self.go = threading.Event()

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        return self.decide_recorded(state, trigger)[0]

    def decide_recorded(self, state: ClusterState, trigger: Trigger) -> tuple[Decision, SetSamples]:
        self.left -= 1
        if self.left == -1:
            self.go.wait(100.0)
        return self.inner.decide_recorded(state, trigger)

    def observe(self, progress: Sequence[Progress]) -> None:
        self.inner.observe(progress)


@pytest.mark.parametrize("max_bytes", [10**7, 1000])
def test_a_policy_that_hangs_and_comes_back_is_replayed_with_what_it_missed(tmp_path: Path, max_bytes: int) -> None:
    first = candidate()
    assert isinstance(first.policy, SetPolicy)
    hanging = HangingPolicy(first.policy, hangs_at=5)
    asker = DeadlineAsker(60.0, Clock())

    def let_go(active: ActivePolicy, number: int) -> None:
        asker.deadline_seconds = 0.05 if number == 5 else 60.0  # no other decision is late, however busy the machine
        if number == 9:
            hanging.go.set()
            while asker.busy:
                time.sleep(0.001)

    live(tmp_path, make_tape(16), replace(first, policy=hanging), asker=asker, before_each=let_go, max_bytes=max_bytes)
    lines = [line for path in log_files(tmp_path) for line in read_log(path)]
    assert [line["asked"] for line in lines[5:10]] == [True, False, False, False, True]
    assert lines[5]["interventions"] == lines[7]["interventions"] == ["deadline"]
    result = replayed(tmp_path)
    assert (result.decisions, result.different, result.unknown) == (16, 0, 0)


def test_a_lesson_that_failed_is_followed_by_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = candidate()
    observe, calls = first.policy.observe, itertools.count()

    def sometimes(progress: Sequence[Progress]) -> None:
        observe(progress)
        if next(calls) == 4:
            raise ZeroDivisionError

    monkeypatch.setattr(first.policy, "observe", sometimes)
    live(tmp_path, make_tape(10), first)
    result = replayed(tmp_path)
    assert (result.decisions, result.different, result.checkpoints) == (10, 0, 2)


@pytest.mark.parametrize(
    ("change", "job", "field"),
    [
        (lambda line: line["allocation"].update({"job-2": [9, 9]}), "job-2", "workers"),
        (lambda line: line["allocation"].update({"stranger": [0, 1]}), "stranger", "workers"),
        (lambda line: line.update(reasons=["because"]), "", "reasons"),
        (lambda line: line.update(interventions=["idle"]), "", "interventions"),
        (lambda line: line.update(beliefs_digest="0" * 64), "", "beliefs_digest"),
        (lambda line: line["observed"][0].__setitem__(5, 1.0), "", "beliefs_digest"),
    ],
)
def test_the_first_difference_is_named(
    tmp_path: Path, change: Callable[[JsonObject], None], job: str, field: str
) -> None:
    live(tmp_path, make_tape(8), candidate())
    rewritten(tmp_path / CURRENT, 6, change)
    result = replayed(tmp_path)
    assert result.first is not None
    assert (result.first.number, result.first.job, result.first.field) == (4, job, field)
    assert result.first.logged != result.first.recomputed
    assert result.first.where.endswith("line 6")


def test_a_changed_probability_is_named(tmp_path: Path) -> None:
    how = PolicySettings(mode="sample")
    live(tmp_path, make_tape(3), CandidateFactory(how).from_name_or_file(dl2_file(tmp_path)), settings=how)
    rewritten(tmp_path / CURRENT, 2, lambda line: line["behaviour"].__setitem__(1, 0.5))
    result = replayed(tmp_path)
    assert result.different == 1
    assert result.first is not None
    assert result.first.field == "probability of action 1"


def test_beliefs_that_something_else_has_changed_are_taken_down_anew(tmp_path: Path) -> None:
    def forget_own_share(active: ActivePolicy, number: int) -> None:
        if number == 5:
            active.assigned.policy.beliefs.leave_out_own()  # type: ignore[attr-defined]

    live(tmp_path, make_tape(10), candidate(), before_each=forget_own_share)
    result = replayed(tmp_path)
    assert (result.decisions, result.different, result.checkpoints) == (10, 0, 2)


@FEW
@given(st.data())
def test_a_flipped_byte_is_noticed_or_said(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("log")
    live(folder, make_tape(4, jobs=2), candidate("optimus"))
    live(folder, make_tape(2, jobs=2), candidate("optimus"))
    path = folder / CURRENT
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        result = replayed(path)
    except StateDamaged as error:
        message = str(error)
    else:
        message = result.cut_short[0]
        # Only a line that now looks torn gets past, where one may stand: at the end or before a checkpoint.
        assert (len(result.cut_short), result.different) == (1, 0)
    assert "line " in message


@pytest.mark.parametrize("line", [1, 3, 5])
def test_a_removed_line_is_noticed(tmp_path: Path, line: int) -> None:
    live(tmp_path, make_tape(6), candidate())
    path = tmp_path / CURRENT
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: line - 1] + lines[line:]))
    with pytest.raises(StateDamaged, match=r"missing|gone"):
        replayed(path)


def test_a_damaged_line_in_the_middle_is_named_by_its_number(tmp_path: Path) -> None:
    live(tmp_path, make_tape(6), candidate())
    path = tmp_path / CURRENT
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:200] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(StateDamaged, match="line 4: damaged in the middle"):
        replayed(path)


def test_a_policy_that_nobody_has_is_one_clear_error(tmp_path: Path) -> None:
    first = CandidateFactory(PolicySettings()).from_name_or_file(dl2_file(tmp_path))
    live(tmp_path, make_tape(3), first)
    kept = tmp_path / "policies"
    assert replayed(tmp_path).different == 0
    moved = kept.rename(tmp_path / "elsewhere")
    with pytest.raises(PolicyNotKept, match=r"line 1: policy dl2\.safetensors .* --policies"):
        replayed(tmp_path)
    assert replayed(tmp_path, moved).decisions == 3
    (moved / f"{first.identity.digest}.safetensors").rename(moved / "any-name.safetensors")
    assert replayed(tmp_path, moved).decisions == 3


def test_decisions_on_the_head_are_said_to_need_a_version(tmp_path: Path) -> None:
    live(tmp_path, make_tape(2), CandidateFactory(PolicySettings()).from_head(SPEC, WEIGHTS, 12))
    with pytest.raises(PolicyNotKept, match=r"head-12.*not kept"):
        replayed(tmp_path)


def test_only_the_newest_policies_are_kept(tmp_path: Path) -> None:
    archive = PolicyArchive(tmp_path, keep=3)
    names = [digest_of(bytes([number])) for number in range(6)]
    for number in (0, 1, 2, 0, 3, 4):
        archive.add(names[number], bytes([number]))
        for path in tmp_path.iterdir():  # the clock of a file system may be coarse
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**9))
    assert {path.stem for path in tmp_path.iterdir()} == {names[0], names[3], names[4]}


def test_a_log_of_an_earlier_version_is_put_aside_and_said(tmp_path: Path) -> None:
    (tmp_path / CURRENT).write_text('{"state":{},"number":0}\n')
    live(tmp_path, make_tape(2), candidate())
    assert len(closed_files(tmp_path)) == 1
    assert replayed(tmp_path / CURRENT).decisions == 2
    with pytest.raises(StateDamaged, match="line 1: has no checksum"):
        replayed(closed_files(tmp_path)[0])


json_values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.just([])
Path_ = list[str | int]


def paths_of(value: object, path: Path_) -> list[Path_]:
    """Where the parts of a JSON value are."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, part in items for deeper in paths_of(part, [*path, key]))]


@FEW
@given(st.data())
def test_whatever_a_forger_writes_is_refused_or_replayed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    live(folder, make_tape(3, jobs=2), candidate("marginal"), fallback="optimus")
    path = folder / CURRENT

    def forge(content: JsonObject) -> None:
        *way, last = data.draw(st.sampled_from(paths_of(content, [])[1:]))
        part: Any = content
        for key in way:
            part = part[key]
        part[last] = data.draw(json_values)

    rewritten(path, data.draw(st.integers(1, 4)), forge)
    try:
        result = replayed(path)
    except (StateDamaged, PolicyNotKept) as error:
        message = str(error)
        assert "\n" not in message
    else:
        assert result.decisions <= 3


def test_settings_that_were_changed_are_named_in_our_words(tmp_path: Path) -> None:
    live(tmp_path, make_tape(3, jobs=2), candidate("marginal"))
    path = tmp_path / CURRENT
    rewritten(path, 1, lambda content: content["settings"].update(exploration="much"))
    with pytest.raises(StateDamaged, match=r"line 1: settings: setting exploration = 'much': use a number, such as"):
        replayed(path)


def test_a_line_of_no_end_is_refused_before_it_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy_net.exchange.state_codec.LONGEST_LINE_BYTES", 1000)
    (tmp_path / CURRENT).write_bytes(b'{"state":' + b"[" * 5000)
    with pytest.raises(StateDamaged, match="line 1: longer than 1000 bytes"):
        replayed(tmp_path / CURRENT)

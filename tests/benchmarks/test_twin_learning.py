"""The benchmark of learning from twins: who teaches whom, what it sums up, what it keeps and what it refuses."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.worlds import Cluster, clusters_in
from benchmarks.twin_learning.__main__ import cell, folds_of, main, parts_of, pasts_of, start_file, summary
from benchmarks.twin_learning.command_line import SETTINGS
from benchmarks.twin_learning.fleet import Training, first_jobs, train
from benchmarks.twin_learning.generated import generated_clusters
from benchmarks.twin_learning.judged import Compared, averaged, compare
from benchmarks.twin_learning.judged import summary as judged_summary
from foundation.errors import BAD_INPUT, DONE
from policy_net.exchange.policy_file import PolicyFile, digest_of, read_policy_file, write_policy_file
from policy_net.exchange.spec import SET_TAUGHT
from policy_net.laboratory.simulation.environment import DecideOn
from policy_net.set_policy.policy import default_set_file, shipped_file
from policy_net.set_policy.spreads import spreads_of

JOBS = 2600


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two made-up recordings, long enough for a window of every part, of minutes each so that replays are short."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "workloads").mkdir()
    for number, name in enumerate(("east", "west")):
        generator = random.Random(number)
        rows = ["job_id,submit_time_s,duration_s,num_gpus"]
        at = 0.0
        for job in range(JOBS):
            at += generator.expovariate(1.0 / 300.0)
            rows.append(
                f"{name}-{job},{at:.1f},{generator.lognormvariate(6.5, 1.0):.1f},{generator.choice((1, 1, 2, 4))}"
            )
        (folder / "workloads" / f"{name}.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_every_cluster_is_judged_once_and_never_by_what_it_taught() -> None:
    clusters = [Cluster(f"c{number}", "", 5000) for number in range(7)]
    folds = list(folds_of(clusters, 3))
    assert sorted(cluster.name for _, judged in folds for cluster in judged) == [cluster.name for cluster in clusters]
    for teaching, judged in folds:
        assert not {cluster.name for cluster in teaching} & {cluster.name for cluster in judged}
        assert len(teaching) + len(judged) == 7


def test_clusters_teach_from_their_first_jobs_alone(data: Path, tmp_path: Path) -> None:
    clusters = clusters_in(data)
    assert parts_of(clusters[0]) == {Part.TRAIN: 0, Part.VALIDATION: 1, Part.TEST: 2}
    past = first_jobs(data, "east", 1000, tmp_path)
    assert len(past.read_text().splitlines()) == 1001
    assert past.read_text().splitlines()[-1].startswith("east-999,")
    judged = cell(clusters[0], Part.VALIDATION, "mix-unknown", 1)
    assert (judged.window, judged.part, judged.durations) == (1, Part.VALIDATION, Durations.UNKNOWN)


def test_the_start_acts_as_the_shipped_policy_and_can_learn_more() -> None:
    start, shipped = start_file(), default_set_file()
    assert np.array_equal(start.weights[: shipped.weights.size], shipped.weights)
    assert not start.weights[shipped.weights.size :].any()
    assert start.priors == shipped.priors


@pytest.mark.heavy
def test_a_seed_teaches_the_same_bits_again_and_another_others(data: Path, tmp_path: Path) -> None:
    pasts = pasts_of(clusters_in(data), "mix-unknown", data, tmp_path)
    training = Training(updates=3, pairs=1, window_jobs=60, learning_rate=0.1)
    first, again, other = (train(start_file(), pasts, training, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, start_file().weights)
    wrong = train(start_file(), pasts, replace(training, speeds_wrong=0.15), 1)
    assert not np.array_equal(first, wrong)


@pytest.mark.heavy
def test_what_it_prints_and_what_it_keeps(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--data", str(data), "--updates", "2", "--pairs", "1", "--window-jobs", "60", "--folds", "2"]
    assert main([*small, "--settings", "mix-unknown", "-o", "json"]) == DONE
    found = json.loads(capsys.readouterr().out)["settings"]["mix-unknown"]
    assert sorted(found["clusters"]) == ["east", "west"]
    assert found["learned_ci95"][0] <= found["learned_mean"] <= found["learned_ci95"][1]
    assert abs(found["learned_mean"]) < 0.2
    assert found["control_mean"] is not None
    out = tmp_path / "taught.safetensors"
    assert main([*small, "--settings", "mix-known", "allreduce-unknown", "--write", str(out)]) == DONE
    kept = read_policy_file(out)
    assert kept.spec == start_file().spec
    assert kept.card["clusters"] == ["east", "west"]
    assert not np.array_equal(kept.weights, start_file().weights)
    judged = ["--data", str(data), "--settings", "allreduce-known", "--judge", "test", "--file", str(out)]
    assert main(judged) == DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["judge"], found["against"], found["files"]) == ("test", "set", [digest_of(out.read_bytes())])
    figures = found["settings"]["allreduce-known"]
    assert figures["all"] == figures["taught"]
    assert "never_seen" not in figures
    assert figures["all"]["mean"] == pytest.approx(sum(figures["clusters"].values()) / 2)
    assert 0.0 < abs(figures["all"]["mean"]) < 0.2


@pytest.mark.heavy
def test_the_start_against_itself_changes_nothing(data: Path) -> None:
    start = start_file()
    file = PolicyFile(start.spec, start.weights, {"clusters": ["east"]}, start.priors)

    def window(cluster: Cluster, draw: int) -> RealCell | None:
        return cell(cluster, Part.VALIDATION, "mix-unknown", draw) if cluster.name == "east" else None

    (found,) = compare(file, start, clusters_in(data), window, 2, data)
    assert found == Compared("east", True, (0.0, 0.0, 0.0))


@pytest.mark.heavy
def test_a_real_learner_and_agents_make_a_file_too(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "taught.safetensors"
    small = ["--data", str(data), "--updates", "2", "--pairs", "1", "--window-jobs", "60"]
    assert main([*small, "--settings", "mix-unknown", "--agents", "--write", str(out)]) == DONE
    made = read_policy_file(out)
    assert made.spec == start_file().spec
    assert (made.card["clusters"], made.card["by"]) == (["east", "west"], "a real learner and agents")
    moved = np.abs(made.weights - start_file().weights) / spreads_of(start_file().spec)
    assert 0.0 < moved.max() < 2.0, "two steps of three tenths of a spread, averaged"


@pytest.mark.heavy
def test_generated_clusters_teach_beside_recorded_ones(data: Path, tmp_path: Path) -> None:
    clusters = generated_clusters(2)
    assert len(clusters) == 12
    assert max(cluster.nodes for cluster in clusters) == 125
    draws = [clusters[0].draw(np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert draws[0].workload == draws[1].workload != draws[2].workload
    assert {draws[0].environment.decide_on} == {DecideOn.SLOT}
    pasts = pasts_of(clusters_in(data), "mix-unknown", data, tmp_path)
    training = Training(updates=4, pairs=1, window_jobs=60, learning_rate=0.1)
    alone, both = (train(start_file(), pasts, training, 1, each) for each in ([], clusters[:2]))
    assert not np.array_equal(alone, both)
    out = tmp_path / "taught.safetensors"
    words = ["--data", str(data), "--updates", "2", "--pairs", "1", "--window-jobs", "60", "--settings", "mix-known"]
    assert main([*words, "--generated", "1", "--seed", "4", "--write", str(out)]) == DONE
    assert {name: read_policy_file(out).card[name] for name in ("generated", "seed")} == {"generated": 1, "seed": 4}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--generated", "1"], "are for --write"),
        (["--agents"], "are for --write"),
        (["--speeds-wrong", "0.15"], "are for --write"),
        (["--speeds-wrong", "2", "--write", "x"], "from 0 to 1"),
        (["--seed", "-1", "--write", "x"], "0 or more"),
        (["--agents", "--generated", "1", "--write", "x"], "leave the others out"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    data: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(data), *words]) == BAD_INPUT
    assert said in capsys.readouterr().err


def test_clusters_that_taught_and_clusters_never_seen_are_told_apart() -> None:
    found = judged_summary(
        [
            Compared("a", True, (math.log(0.9), 0.0, 0.0)),
            Compared("b", False, (math.log(0.8), math.log(1.1), 0.0)),
            Compared("c", False, (math.log(1.0), math.log(0.9), math.log(2.0))),
        ]
    )
    assert found["taught"]["mean"] == pytest.approx(-0.1)
    assert found["taught"]["standard_error"] is None
    assert found["never_seen"]["mean"] == pytest.approx(-0.1)
    assert found["never_seen"]["standard_error"] == pytest.approx(0.1)
    assert (found["never_seen"]["best"], found["never_seen"]["worst"]) == (pytest.approx(-0.2), pytest.approx(0.0))
    assert found["never_seen"]["p99_mean"] == pytest.approx(0.0)
    assert found["never_seen"]["longest_mean"] == pytest.approx(0.5)
    assert found["all"]["clusters"] == 3


def test_of_several_training_seeds_each_cluster_has_the_mean() -> None:
    first = [Compared("a", True, (0.2, 0.0, 0.4)), Compared("b", False, (0.0, 0.0, 0.0))]
    second = [Compared("a", True, (-0.4, 0.2, 0.4)), Compared("b", False, (0.1, 0.0, 0.0))]
    found = averaged([first, second])
    assert [(one.cluster, one.taught) for one in found] == [("a", True), ("b", False)]
    assert found[0].changes == pytest.approx((-0.1, 0.1, 0.4))
    assert found[1].changes == pytest.approx((0.05, 0.0, 0.0))
    assert averaged([first]) == first
    assert judged_summary(found)["all"]["without_best"] == pytest.approx(math.expm1(0.05))


def test_files_of_different_teachers_are_not_averaged(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = start_file()
    files = [tmp_path / f"{name}.safetensors" for name in ("east", "west")]
    for file in files:
        write_policy_file(file, PolicyFile(start.spec, start.weights, {"clusters": [file.stem]}, start.priors))
    assert main(["--data", str(data), "--file", *map(str, files)]) == BAD_INPUT
    assert "taught by different clusters" in capsys.readouterr().err


def test_a_file_that_names_no_teachers_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = start_file()
    file = tmp_path / "no-card.safetensors"
    write_policy_file(file, PolicyFile(start.spec, start.weights, {}, start.priors))
    assert main(["--data", str(data), "--file", str(file)]) == BAD_INPUT
    assert "does not say which clusters taught it" in capsys.readouterr().err


def test_the_taught_policy_that_ships_says_who_taught_it_and_that_it_came_of_set() -> None:
    shipped = shipped_file(SET_TAUGHT)
    assert shipped.spec == start_file().spec
    assert shipped.priors == default_set_file().priors
    assert len(shipped.card["clusters"]) == 11
    assert shipped.card["settings"] == list(SETTINGS)
    assert not np.array_equal(shipped.weights, start_file().weights)


def test_changes_are_averaged_over_seeds_before_clusters() -> None:
    learned = {"a": [-0.02, -0.04], "b": [0.01, 0.01], "c": [-0.10, -0.10]}
    over_set = {"a": [-0.05], "b": [0.02], "c": [-0.1]}
    found = summary(learned, {"a": [0.0], "b": [0.01], "c": [-0.01]}, over_set, {"a": [-0.06], "b": [-0.04]})
    assert found["taught_mean"] == pytest.approx(-0.05)
    assert found["silent_share"] == pytest.approx(0.8)
    assert found["clusters"] == {"a": pytest.approx(-0.03), "b": pytest.approx(0.01), "c": pytest.approx(-0.1)}
    assert found["learned_mean"] == pytest.approx(-0.04)
    assert found["learned_without_best"] == pytest.approx(-0.01)
    assert found["control_mean"] == pytest.approx(0.0)
    assert found["worst_cluster"] == pytest.approx(0.02)


@pytest.mark.parametrize("wrong", [["--updates", "0"], ["--folds", "1"], ["--pairs", "0"]])
def test_numbers_that_make_no_run_are_refused(data: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]) -> None:
    assert main(["--data", str(data), *wrong]) == BAD_INPUT
    assert "are 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "said"), [(["--permute"], "--permute is for --write"), (["--against", "start"], "is for --file")]
)
def test_an_option_that_would_do_nothing_is_refused(
    data: Path, capsys: pytest.CaptureFixture[str], option: list[str], said: str
) -> None:
    assert main(["--data", str(data), *option]) == BAD_INPUT
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_folder_without_long_recordings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == BAD_INPUT
    assert "long enough" in capsys.readouterr().err


@pytest.mark.heavy
def test_what_stalls_cost_is_said_by_cluster_with_how_often_jobs_change(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--data", str(data), "--settings", "mix-known", "--judge", "test", "--stalls", "120"]
    assert main(asked) == DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["stalls_seconds"], found["judge"]) == (120.0, "test")
    setting = found["settings"]["mix-known"]
    assert sorted(setting["clusters"]) == ["east", "west"]
    assert min(setting["clusters"].values()) > 0.0
    assert setting["loss_worst"] == pytest.approx(max(setting["clusters"].values()))
    assert 0.0 < setting["resizes_per_job"] < setting["resizes_per_job_without_stalls"]


def test_stalls_are_seconds_and_of_the_default_policy(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in (["--stalls", "0"], ["--stalls", "inf"], ["--stalls", "120", "--file", str(tmp_path / "any")]):
        assert main(["--data", str(data), *wrong]) == BAD_INPUT
        assert "--stalls is a finite number of seconds above 0" in capsys.readouterr().err

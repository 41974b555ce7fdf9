"""The benchmark of learning from twins: who teaches whom, what it sums up, what it keeps and what it refuses."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.worlds import Cluster, clusters_in
from benchmarks.twin_learning.__main__ import SETTINGS, cell, main, parts_of, pasts_of, start_file
from benchmarks.twin_learning.fleet import Training, first_jobs, generated_clusters, train
from benchmarks.twin_learning.judged import Compared, averaged, compare, summary
from foundation.errors import BAD_INPUT, DONE
from policy_net.exchange.policy_file import PolicyFile, digest_of, read_policy_file, write_policy_file
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import SET_TAUGHT
from policy_net.laboratory.simulation.environment import DecideOn
from policy_net.set_policy.policy import default_set_file

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


@pytest.mark.heavy
def test_what_it_keeps_and_what_it_says_of_that(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--data", str(data), "--updates", "2", "--pairs", "1", "--window-jobs", "60"]
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


def test_clusters_that_taught_and_clusters_never_seen_are_told_apart() -> None:
    found = summary(
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
    assert summary(found)["all"]["without_best"] == pytest.approx(math.expm1(0.05))


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--write FILE, to make a policy file, or --file FILE"),
        (["--write", "x", "--file", "x"], "--write FILE, to make a policy file, or --file FILE"),
        (["--write", "x"], "long enough"),
        (["--write", "x", "--updates", "0"], "are 1 or more"),
        (["--write", "x", "--pairs", "0"], "are 1 or more"),
        (["--write", "x", "--seed", "-1"], "0 or more"),
        (["--write", "x", "--against", "start"], "is for --file"),
        (["--file", "x", "--permute"], "are for --write"),
        (["--file", "x", "--generated", "1"], "are for --write"),
        (["--file", "x", "--average", "y"], "are for --write"),
        (["--write", "x", "--average", "y", "z", "--seed", "1"], "trains nothing"),
    ],
)
def test_options_that_would_do_nothing_or_make_no_run_are_refused(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path), *words]) == BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m benchmarks.twin_learning: ")
    assert said in line

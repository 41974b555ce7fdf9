from pathlib import Path

import numpy as np
import pytest

from foundation import command_line
from policy_net.cli import app
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file
from policy_net.exchange.shipped import file_of
from policy_net.exchange.spec import SetSpec
from policy_net.set_policy.policy import default_set_file, extended

FEW = str(Path(__file__).with_name("few.yaml"))


def _train(*words: str) -> int:
    few = ("--workload", "dl2:jobs=3,seed=1", "--jobs-per-batch", "3", "--steps", "2", "--config", FEW)
    return command_line.run(app, "policy-net", ["train", *few, *words])


def test_what_is_written_can_be_read_and_says_how_it_came_to_be(tmp_path: Path) -> None:
    out = tmp_path / "small.safetensors"
    assert _train("--out", str(out), "--imitate", "drf", "--imitation-steps", "2") == 0
    card = read_policy_file(out).card
    assert (card["imitated"], card["updates"]) == ("drf", 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--learning-rate", "nan"), "nan is not a finite number"),
        (("--max-seconds", "nan"), "nan is not a finite number"),
        (("--workload", "nowhere.csv"), "nowhere.csv"),
        (("--imitate", "nobody"), "unknown policy 'nobody'"),
        (("--imitate", "ffio"), "; did you mean fifo?"),
        (("--policy", "drf"), "--policy drf"),
        (("--policy", "set"), "few.yaml is for a dl2 policy"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(tmp_path: Path, capsys, words, says) -> None:
    assert _train("--out", str(tmp_path / "small.safetensors"), *words) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert says in error
    assert not list(tmp_path.iterdir())


def test_a_learning_rate_that_cannot_be_used_shows_in_training(tmp_path: Path, capsys) -> None:
    assert _train("--out", str(tmp_path / "small.safetensors"), "--learning-rate", "1e38") == 2
    assert "--learning-rate 1e+38: the weights became infinite" in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [("--policy", "set", "--from", "set"), ("--policy", "dl2")])
def test_what_was_assumed_of_a_workload_is_said_once_as_replay_says_it(tmp_path: Path, capsys, kind) -> None:
    log = tmp_path / "big.csv"
    rows = "".join(f"{job},{60 * job},600,{1 + job % 4}\n" for job in range(4))
    log.write_text("job_id,submit_time_s,duration_s,num_gpus\n" + rows + "late,400,long,1\n")
    assert command_line.run(app, "policy-net", ["replay", "--workload", str(log), "--policy", "fifo"]) == 0
    replays = [line for line in capsys.readouterr().err.splitlines() if "machines assumed" in line]
    train = ["train", *kind, "--workload", str(log), "--steps", "0", "--out", str(tmp_path / "mine.safetensors")]
    assert command_line.run(app, "policy-net", train) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "machines assumed" in line] == replays
    assert replays[0].startswith(
        "  machines assumed: 2 GPUs each, 8 CPU cores each, their number by the load; say --nodes"
    )
    assert sum("malformed, skipped: 1" in line for line in said) == 1
    assert command_line.run(app, "policy-net", [*train, "-o", "json"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert (sum("malformed" in line for line in said), sum("machines assumed" in line for line in said)) == (1, 0)


def test_a_set_policy_is_trained_without_jobs_per_batch_and_says_whether_its_residual_paid(
    tmp_path: Path, monkeypatch
) -> None:
    for name in ("PRIOR_WORLDS", "WORLDS_PER_CLUSTER"):
        monkeypatch.setattr(f"policy_net.laboratory.training.set_training.{name}", 1)
    monkeypatch.setattr("policy_net.laboratory.commands.train_set.VALIDATION_WORLDS", 2)
    out = tmp_path / "mine.safetensors"
    words = ("--policy", "set", "--workload", "dl2:jobs=4,seed=1", "--steps", "1", "--out", str(out))
    assert command_line.run(app, "policy-net", ["train", *words]) == 0
    content = read_policy_file(out)
    assert content.priors
    assert content.card["generations"] == 1
    assert content.weights.any() == content.card["residual_published"]
    assert _train("--policy", "set", "--out", str(out)) == 2  # it has --jobs-per-batch, which is dl2's


def test_a_set_policy_is_taught_in_a_twin_where_the_config_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("policy_net.laboratory.commands.train_set.VALIDATION_WORLDS", 2)
    config, out = tmp_path / "mine.yaml", tmp_path / "mine.safetensors"
    config.write_text("policy: set\nset: {method: twin, twin: {pairs: 1, learning_rate: 1}}\n")
    words = ("--workload", "dl2:jobs=4,seed=1", "--steps", "2", "--config", str(config), "--out", str(out))
    assert command_line.run(app, "policy-net", ["train", *words]) == 0
    content = read_policy_file(out)
    assert isinstance(content.spec, SetSpec)
    assert content.spec.prices
    assert content.spec.sessions
    assert (content.card["updates"], content.card["started_from"]) == (2, "set")
    taught = not np.array_equal(content.weights, extended(default_set_file(), "set").weights)
    assert taught == content.card["residual_published"]


@pytest.mark.heavy
def test_a_config_may_name_whom_to_imitate_and_the_option_comes_first(tmp_path: Path, capsys) -> None:
    config, out = tmp_path / "mine.yaml", tmp_path / "mine.safetensors"
    config.write_text("policy: dl2\ndl2: {neurons: 8, imitate: fifo, imitation_steps: 2}\n")
    assert _train("--config", str(config), "--out", str(out)) == 0
    assert read_policy_file(out).card["imitated"] == "fifo"
    assert _train("--config", str(config), "--imitate", "drf", "--out", str(out)) == 0
    assert read_policy_file(out).card["imitated"] == "drf"
    config.write_text("policy: dl2\ndl2: {imitate: nobody}\n")
    capsys.readouterr()
    assert _train("--config", str(config), "--out", str(out)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "setting dl2.imitate = 'nobody': unknown policy" in line


def test_an_unwritable_file_is_found_out_before_the_work(tmp_path: Path, capsys, monkeypatch) -> None:
    def work(*_arguments: object, **_settings: object) -> None:
        raise AssertionError("worked before it looked")

    monkeypatch.setattr("policy_net.laboratory.commands.train_dl2.train_in_groups", work)
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "file" / "small.safetensors"):
        assert _train("--out", str(out)) == 2
        assert f"{out}: cannot be written" in capsys.readouterr().err


def test_another_number_of_jobs_than_the_file_was_made_for_is_refused(tmp_path: Path, capsys) -> None:
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    assert _train("--out", str(first)) == 0
    capsys.readouterr()
    assert _train("--from", str(first), "--out", str(second), "--jobs-per-batch", "4") == 2
    assert "was made for 3" in capsys.readouterr().err
    assert not second.exists()


def test_rewards_of_decisions_need_the_critic_that_groups_leave_out(tmp_path: Path, capsys) -> None:
    groups, rewards = tmp_path / "groups.safetensors", tmp_path / "rewards.safetensors"
    assert _train("--out", str(groups)) == 0
    assert not read_policy_file(groups).network_spec.critic
    capsys.readouterr()
    assert _train("--from", str(groups), "--out", str(rewards), "--reward", "paper") == 2
    assert "this dl2 policy has no critic" in capsys.readouterr().err.splitlines()[-1]
    assert not rewards.exists()
    train = [
        "train",
        "--workload",
        "dl2:jobs=3,seed=1",
        "--jobs-per-batch",
        "3",
        "--imitate",
        "drf",
        "--imitation-steps",
    ]
    assert command_line.run(app, "policy-net", [*train, "1", "--reward", "paper", "--out", str(rewards)]) == 0
    assert read_policy_file(rewards).network_spec.critic


def test_without_the_compiled_twin_groups_take_longer_and_it_is_said(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("policy_net.laboratory.commands.train_dl2.notice", lambda: "the compiled twin was not built")
    assert _train("--steps", "1", "--out", str(tmp_path / "mine.safetensors")) == 0
    assert "the compiled twin was not built" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--from", "set-taught"), ("--policy", "set-taught")])
def test_training_goes_on_from_what_ships_by_its_name(tmp_path: Path, words: tuple[str, ...], capsys) -> None:
    out = tmp_path / "more.safetensors"
    train = ["train", "--workload", "dl2:jobs=3,seed=1", "--steps", "0", "--out", str(out), *words]
    assert command_line.run(app, "policy-net", train) == 0
    assert read_policy_file(out).weights.tobytes() == read_policy_file(file_of(Path("set-taught"))).weights.tobytes()
    capsys.readouterr()
    assert command_line.run(app, "policy-net", [*train, "--policy", "set-taught", "--from", "set"]) == 2
    assert "--from set says already what to go on from; use --policy set" in capsys.readouterr().err


def test_a_log_is_not_imitated_from_a_policy_with_prices_of_its_own(tmp_path: Path, capsys) -> None:
    shipped, out = default_set_file(), tmp_path / "imitated.safetensors"
    spec = SetSpec(prices=1)
    priced = tmp_path / "priced.safetensors"
    write_policy_file(priced, PolicyFile(spec, np.zeros(spec.parameter_count, dtype=np.float32), {}, shipped.priors))
    words = ["--policy", "set", "--imitate", "drf", "--from", str(priced), "--steps", "0", "--out", str(out)]
    assert command_line.run(app, "policy-net", ["train", "--workload", "dl2:jobs=3,seed=1", *words]) == 2
    *before, error = capsys.readouterr().err.splitlines()
    assert "has prices of its own" in error
    assert before[0].startswith("dl2:jobs=3,")
    assert all(line.startswith("  ") for line in before[1:]), "what was assumed of the workload, and nothing else"
    assert not out.exists()


@pytest.mark.heavy
def test_a_config_says_what_the_network_is_and_how_it_learns_and_options_come_first(tmp_path: Path) -> None:
    config, out = tmp_path / "mine.yaml", tmp_path / "mine.safetensors"
    config.write_text("policy: dl2\ndl2:\n  neurons: 8\n  layers: 3\n  learning_rate: 0.002\n  imitation_steps: 3\n")
    words = ("--imitate", "drf", "--learning-rate", "0.001", "--config", str(config), "--out", str(out))
    assert _train(*words) == 0
    content = read_policy_file(out)
    assert content.network_spec.hidden == (8, 8, 8)
    assert (content.card["learning_rate"], content.card["imitation_steps"]) == (0.001, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dl2:\n  neuron: 8\n", "unknown setting dl2.neuron; did you mean neurons?"),
        ("dl2:\n  neurons: 0\n", "setting dl2.neurons = 0"),
        ("policy: drf\n", "setting policy = 'drf'"),
        ("policy: set\n", "is for a set policy"),
        ("", "holds no settings"),
    ],
)
def test_a_config_that_cannot_be_used_is_one_line(tmp_path: Path, capsys, text, says) -> None:
    config, out = tmp_path / "mine.yaml", tmp_path / "mine.safetensors"
    config.write_text(text)
    assert _train("--policy", "dl2", "--config", str(config), "--out", str(out)) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert says in error
    assert not out.exists()


def test_a_training_of_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.safetensors"
    assert _train("--out", str(out), "--steps", "0") == 0
    assert "nothing was trained: the weights are random" in capsys.readouterr().err
    assert read_policy_file(out).card["trained"] is False


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train("--out", str(tmp_path / "nowhere" / "x.safetensors")) == 2
    assert "cannot be written (No such file or directory)" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()

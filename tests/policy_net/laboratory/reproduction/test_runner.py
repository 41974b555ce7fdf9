"""The runner and its tasks, with trainings of a moment."""

from dataclasses import replace
from pathlib import Path

import pytest
from moments import TINY, Inline

from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import read_policy_file
from policy_net.laboratory.reproduction import tasks
from policy_net.laboratory.reproduction.dl2 import (
    DL2,
    EXPERIMENTS,
    FIGURE_11,
    FIGURE_17,
    GROUPS,
    OFFLINE_RL,
    REWARDS_ONLY,
)
from policy_net.laboratory.reproduction.experiment import Experiment, ExperimentLine, Measure, PolicyTraining, World
from policy_net.laboratory.reproduction.runner import ExperimentRunner
from policy_net.laboratory.reproduction.tasks import Judging, Learning, policy_path, training_episodes
from policy_net.laboratory.task_processes import Unanswered
from policy_net.laboratory.training import offline


def runner(folder: Path, crew: Inline, seed: int = 0) -> ExperimentRunner:
    folder.mkdir(exist_ok=True)
    return ExperimentRunner(EXPERIMENTS, folder, TINY, seed, crew)  # type: ignore[arg-type]


def of(*lines: ExperimentLine) -> Experiment:
    return Experiment("fig0", "", lines, (), "")


TWO = of(ExperimentLine("DRF", "drf"), ExperimentLine("DL2", DL2), ExperimentLine("imitated", DL2, trained_share=0.0))


def test_a_point_for_every_line_with_a_figure_for_every_workload(tmp_path: Path) -> None:
    crew = Inline()
    points = runner(tmp_path / "a", crew).run(TWO)
    assert [point.label for point in points] == ["DRF", "DL2", "imitated"]
    for point in points:
        [row] = point.by_seed[Measure.AVG_JCT]
        assert len(row) == TINY.workloads
        assert all(slots > 0.0 for slots in row)
    assert [name.partition("-")[0] for name in crew.done] == ["imitated", "learned", "judged", "judged", "judged"]


def test_the_same_seed_gives_the_same_figures_and_another_one_others(tmp_path: Path) -> None:
    first, again, other = (
        runner(tmp_path / name, Inline(), seed).run(TWO) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first == again
    assert first[0] == other[0]  # a scheduler's does not depend on it
    weights = [
        [read_policy_file(path).weights for path in sorted((tmp_path / name).glob("learned-*-1000.safetensors"))]
        for name in ("a", "b", "c")
    ]
    assert [len(found) for found in weights] == [1, 1, 1]
    assert (weights[0][0] == weights[1][0]).all()
    assert (weights[0][0] != weights[2][0]).any()


def test_what_an_earlier_run_did_is_not_done_again(tmp_path: Path) -> None:
    first = Inline(die_at=2)
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path / "a", first).run(TWO)
    second = Inline()
    points = runner(tmp_path / "a", second).run(TWO)
    assert len(first.done) == 2
    assert len(second.done) == 3
    assert points == runner(tmp_path / "b", Inline()).run(TWO)
    third = Inline()
    assert runner(tmp_path / "a", third).run(TWO) == points
    assert third.done == []


def test_a_training_that_several_figures_show_is_done_once_and_kept_at_all_their_looks(tmp_path: Path) -> None:
    crew = Inline()
    at_work = runner(tmp_path / "a", crew)
    at_work.run(of(ExperimentLine("all", DL2)))
    count = len(crew.done)
    at_work.run(
        of(
            ExperimentLine("half", DL2, trained_share=0.5),
            ExperimentLine("other world", DL2, judged=World(arrivals="poisson")),
        )
    )
    assert [name.partition("-")[0] for name in crew.done[count:]] == ["judged", "judged"]
    assert at_work.trained_shares_of(DL2) == (0.25, 0.5, 0.75, 1.0)
    assert at_work.trained_shares_of(OFFLINE_RL) == (1.0,)


def test_a_training_by_groups_begins_with_random_weights_and_is_kept_at_its_looks(tmp_path: Path) -> None:
    settings = GROUPS.settings
    few = settings.groups.model_copy(update={"draws": 4, "micro_actions": 100})
    training = replace(GROUPS, settings=settings.model_copy(update={"groups": few, "jobs_per_batch": 4}))
    crew, lines = Inline(), of(ExperimentLine("half", training, trained_share=0.5), ExperimentLine("all", training))
    (tmp_path / "a").mkdir()
    at_work = ExperimentRunner([lines], tmp_path / "a", TINY, 0, crew)  # type: ignore[arg-type]  # as in `runner`
    assert all(point.by_seed[Measure.AVG_JCT] for point in at_work.run(lines))
    assert [name.partition("-")[0] for name in crew.done] == ["imitated", "learned", "judged", "judged"]
    start, half, whole = (read_policy_file(path) for path in sorted((tmp_path / "a").glob("*.safetensors")))
    assert start.weights.tobytes() == initial_weights(start.network_spec, 0).tobytes()
    assert len({content.weights.tobytes() for content in (start, half, whole)}) == 3


def test_clusters_that_learn_by_groups_are_more_the_more_there_are(tmp_path: Path) -> None:
    settings = GROUPS.settings
    few = settings.groups.model_copy(update={"draws": 2, "micro_actions": 1, "every_decisions": 1})
    trainings = [
        replace(
            GROUPS,
            settings=settings.model_copy(
                update={"groups": few.model_copy(update={"windows": clusters}), "jobs_per_batch": 4}
            ),
            clusters=clusters,
        )
        for clusters in (1, 2)
    ]
    lines = of(*(ExperimentLine(str(training.clusters), training) for training in trainings))
    (tmp_path / "a").mkdir()
    points = ExperimentRunner([lines], tmp_path / "a", TINY, 0, Inline()).run(lines)  # type: ignore[arg-type]
    one, two = (point.by_seed[Measure.AVG_JCT] for point in points)
    assert one
    assert two
    assert len({path.read_bytes() for path in (tmp_path / "a").glob("learned-*.safetensors")}) == 2


class Dying(Inline):
    """Loses the process of every training."""

    def answers(self, tasks):
        for index, task in enumerate(tasks):
            if isinstance(task, Learning):
                yield index, Unanswered("its process was ended by SIGKILL")
            else:
                task.do()
                yield index, None


def test_a_task_whose_process_is_killed_leaves_its_lines_without_a_figure_and_is_tried_again(tmp_path: Path) -> None:
    drf, dl2, imitated = runner(tmp_path / "a", Dying()).run(TWO)
    assert drf.by_seed[Measure.AVG_JCT]
    assert imitated.by_seed[Measure.AVG_JCT]
    assert (dl2.failures, dl2.lost) == (("its process was ended by SIGKILL",), True)
    again = Inline()
    assert runner(tmp_path / "a", again).run(TWO)[1].by_seed[Measure.AVG_JCT]
    assert len(again.done) == 2


def test_weights_that_become_infinite_are_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*_: object, **__: object) -> None:
        raise FloatingPointError

    monkeypatch.setattr(tasks, "train_offline", diverge)
    point = runner(tmp_path / "a", Inline()).run(of(ExperimentLine("DL2", DL2)))[0]
    assert (point.failures, point.lost) == (("the weights became infinite",), False)


def test_a_training_that_finds_nothing_to_learn_from_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "MOST_TRIES", 10)
    monkeypatch.setattr(offline, "TRIES_AN_UPDATE", 0)
    settings = DL2.settings.model_copy(
        update={"actor_critic": DL2.settings.actor_critic.model_copy(update={"minimum_effective_samples": 1e9})}
    )
    point = runner(tmp_path / "a", Inline()).run(of(ExperimentLine("DL2", PolicyTraining(settings))))[0]
    assert point.failures == ("it found nothing to learn from",)


def test_clusters_that_learn_together_go_through_the_learner_s_code(tmp_path: Path) -> None:
    fleet = PolicyTraining(DL2.settings, clusters=2)
    crew = Inline()
    at_work = runner(tmp_path / "a", crew)
    at_work.run(of(ExperimentLine("DL2", DL2), ExperimentLine("fleet", fleet)))
    assert len([name for name in crew.done if name.startswith("imitated")]) == 1  # they begin alike
    alone, together = (
        read_policy_file(
            policy_path(
                at_work.folder,
                Learning(at_work.folder, training, TINY, 0, at_work.trained_shares_of(training) or (1.0,)).name,
                1.0,
            )
        )
        for training in (DL2, fleet)
    )
    assert alone.spec == together.spec
    assert (alone.weights != together.weights).any()


def test_new_types_come_with_the_first_workload_after_their_time(tmp_path: Path) -> None:
    unseen = FIGURE_17.lines[0].policy
    assert isinstance(unseen, PolicyTraining)
    done = [0]
    episodes = Learning(tmp_path, unseen, TINY, 0, (1.0,))._episodes(lambda: done[0])
    met = []
    for done[0] in (0, 2, 3, 4):
        workload, _ = next(episodes)
        met.append({job.job_type for job in workload.jobs})
    first, six, all_eight = (set(models) for models in unseen.unlocked)
    assert met[0] <= first
    assert met[1] <= six
    assert met[3] <= all_eight
    assert len(first) == 4


def test_a_timeline_is_of_the_model_that_is_asked_for(tmp_path: Path) -> None:
    policy = ExperimentLine("DRF", "drf")
    shown = Experiment("fig0", "", (policy,), (), "", timeline_of="wlm")
    point = runner(tmp_path / "a", Inline()).run(shown)[0]
    assert (point.timeline == ()) == (point.by_seed[Measure.WORKERS_PER_PS] == [[]])
    assert FIGURE_11.timeline_of == "seq2seq"
    nothing = Judging(tmp_path, "drf", 1.0, World(), TINY).name
    assert nothing != Judging(tmp_path, "drf", 1.0, World(), TINY, "wlm").name


def test_without_a_teacher_learning_begins_from_nothing(tmp_path: Path) -> None:
    crew = Inline()
    point = runner(tmp_path / "a", crew).run(of(ExperimentLine("rewards", REWARDS_ONLY)))[0]
    assert len(point.by_seed[Measure.AVG_JCT]) + len(point.failures) == TINY.seeds
    assert all(value > 0.0 for row in point.by_seed[Measure.AVG_JCT] for value in row)


def test_a_disturbed_world_is_disturbed(tmp_path: Path) -> None:
    worlds = {"noise": World(job_noise=0.3), "error": World(epoch_error=0.2), "none": World()}
    drawn = {name: next(training_episodes(world, TINY, 0)) for name, world in worlds.items()}
    assert drawn["noise"][1].job_noise == 0.3
    declared = [job.declared_epochs for job in drawn["error"][0].jobs]
    actual = [job.total_epochs for job in drawn["none"][0].jobs]
    assert declared != actual
    assert all(abs(said / true - 1.0) <= 0.2 for said, true in zip(declared, actual, strict=True))

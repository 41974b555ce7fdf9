import csv
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from foundation import command_line
from foundation.locks import FileLock
from policy_net.cli import app
from policy_net.laboratory.reproduction import runner
from policy_net.laboratory.reproduction.dl2 import SCALES
from policy_net.laboratory.reproduction.tasks import Task, do_task
from policy_net.laboratory.task_processes import Unanswered

FEW = "fig11,table2"


class Crew:
    """Does tasks in this process; is interrupted, or loses the rest, after so many."""

    def __init__(self) -> None:
        self.done = 0
        self.interrupted_at: int | None = None
        self.killed_from: int | None = None

    def answers(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Unanswered | None]]:
        for index, task in enumerate(tasks):
            if self.done == self.interrupted_at:
                raise KeyboardInterrupt
            if self.killed_from is not None and self.done >= self.killed_from:
                yield index, Unanswered("its process was ended by SIGKILL")
                continue
            do_task(task)
            self.done += 1
            yield index, None

    def close(self) -> None:
        """Nothing runs."""


@pytest.fixture(autouse=True)
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    small = {"seeds": 1, "workloads": 2, "jobs": 3, "nodes": 4, "updates": 2, "imitation_steps": 3, "demonstrated": 1}
    monkeypatch.setitem(SCALES, "quick", replace(SCALES["quick"], micro_states=60, **small))
    made = Crew()
    monkeypatch.setattr(runner, "crew", lambda _processes: made)
    return made


def reproduce(*words: str) -> int:
    return command_line.run(app, "policy-net", ["reproduce", "dl2", "--quick", *words])


def test_every_figure_is_a_table_a_picture_and_rows_of_the_summary(tmp_path: Path, capsys) -> None:
    out = tmp_path / "new" / "results"
    assert reproduce("--only", "fig11, fig17", "--out", str(out)) == 0
    said = capsys.readouterr().out.splitlines()
    assert re.match("fig11 +", said[-4]) is not None
    assert re.match("of [0-9]+ rows? beside the paper's [0-9] in its direction, [0-9] in the opposite, ", said[-2])
    assert said[-1].startswith(f"page: {out / 'summary.md'}, ")
    assert reproduce("--only", "fig11, fig17", "--out", str(out), "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["summary"] == str(out / "summary.md")
    assert [(figure["figure"], figure["failed"]) for figure in facts["figures"]] == [("fig11", []), ("fig17", [])]
    ways = ("same_direction", "opposite_direction", "no_difference", "other")
    assert [sum(figure[way] for way in ways) for figure in facts["figures"]] == [
        figure["rows"] for figure in facts["figures"]
    ]
    assert (out / "fig17.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "fig11.csv").read_text().startswith(("slot,workers,ps", "line,at"))
    with (out / "fig17.csv").open() as file:
        assert {row["line"] for row in csv.DictReader(file)} == {"new types", "all types from the beginning"}
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary["figures"]) == ["fig11", "fig17"]
    claim = summary["figures"]["fig17"]["claims"][0]
    assert claim["paper"] == "the same"
    assert {"change", "low", "high", "verdict", "ours"} <= set(claim)
    with (out / "summary.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["figure"] == "fig17"]
    said = ("what", "ours", "verdict")
    assert [rows[0][name] for name in said] == [claim["text"], claim["ours"], claim["verdict"]]
    assert float(rows[0]["low"]) == claim["low"]
    page = (out / "summary.md").read_text()
    assert "benchmarks.resize" in page
    assert "| fig17 | new types against all, at the end | the same |" in page
    assert f"{SCALES['quick'].updates} updates" in page


def test_a_finished_figure_is_not_made_again(tmp_path: Path, crew: Crew) -> None:
    assert reproduce("--only", "fig11", "--out", str(tmp_path / "out")) == 0
    done = crew.done
    assert done > 0
    before = (tmp_path / "out" / "summary.json").read_bytes()
    assert reproduce("--only", "fig11", "--out", str(tmp_path / "out")) == 0
    assert crew.done == done
    assert (tmp_path / "out" / "summary.json").read_bytes() == before


@pytest.mark.heavy
def test_more_seeds_go_on_in_the_same_folder(tmp_path: Path, crew: Crew) -> None:
    out = tmp_path / "out"
    assert reproduce("--only", FEW, "--out", str(out)) == 0
    of_one, pages = crew.done, []
    for seeds in (2, 2, 1):  # one more of each policy; then nothing is left to do, nor taken away
        assert reproduce("--only", "fig11", "--seeds", str(seeds), "--out", str(out)) == 0
        pages.append((out / "summary.md").read_text())
    assert crew.done == of_one + 3  # a warm start, a training, the judging
    assert "1 training seed to 2" in pages[0]
    assert pages[0].count("Of 2 training seeds.") == pages[0].count("Of 1 training seed.") == 1
    assert pages[1:] == pages[:1] * 2
    alone = tmp_path / "alone"
    assert reproduce("--only", "fig11", "--seeds", "2", "--out", str(alone)) == 0
    both = [json.loads((folder / "summary.json").read_text())["figures"]["fig11"] for folder in (out, alone)]
    assert both[0] == both[1]


def test_a_folder_of_before_whose_seeds_were_a_setting_goes_on(tmp_path: Path, crew: Crew) -> None:
    out = tmp_path / "out"
    assert reproduce("--only", "fig11", "--out", str(out)) == 0
    done = crew.done
    settings, summary = (json.loads((out / name).read_text()) for name in ("settings.json", "summary.json"))
    settings["scale"]["seeds"] = summary["scale"]["seeds"]
    del summary["figures"]["fig11"]["seeds"]
    (out / "settings.json").write_text(json.dumps(settings))
    (out / "summary.json").write_text(json.dumps(summary))
    assert reproduce("--only", "fig11", "--out", str(out)) == 0
    assert crew.done == done
    assert json.loads((out / "summary.json").read_text())["figures"]["fig11"]["seeds"] == 1


def test_an_interrupted_run_is_one_line_and_the_next_one_goes_on(tmp_path: Path, crew: Crew, capsys) -> None:
    crew.interrupted_at = 2
    assert reproduce("--only", "fig11", "--out", str(tmp_path / "out")) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "policy-net: interrupted"
    crew.interrupted_at = None
    assert reproduce("--only", "fig11", "--out", str(tmp_path / "out")) == 0
    assert crew.done == 3  # a warm start and a training before, the judging now


@pytest.mark.heavy
def test_a_killed_task_is_said_and_tried_again(tmp_path: Path, crew: Crew, capsys) -> None:
    crew.killed_from = 1
    assert reproduce("--only", "fig11", "--out", str(tmp_path / "out")) == 1
    assert "fig11: a policy has no figure, as its process was ended by SIGKILL" in capsys.readouterr().err
    assert "none: its process was ended by SIGKILL" in (tmp_path / "out" / "summary.md").read_text()
    crew.killed_from = None
    assert reproduce("--only", "fig11", "--out", str(tmp_path / "out")) == 0
    assert "SIGKILL" not in (tmp_path / "out" / "summary.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "fig8"), "--only 'fig8': did you mean fig"),
        (("--only", "speed"), "--only 'speed': there is no such figure; use some of fig9, fig10"),
        (("--only", "fig9,fig13"), "figures 13 and 14 are measured by python -m benchmarks.resize"),
        (("--only", ""), "--only"),
        (("--seed", "-1"), "--seed"),
        (("--seed", "1001"), "--seed"),
        (("--seeds", "0"), "--seeds"),
        (("--seeds", "101"), "--seeds"),
    ],
)
def test_bad_input_is_one_line_before_there_is_a_folder(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys
) -> None:
    assert reproduce(*words, "--out", str(tmp_path / "out")) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


def test_more_processes_than_cores_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.undo()
    assert reproduce("--only", "fig11", "--processes", "9999", "--out", str(tmp_path / "out")) == 2
    assert "this machine has" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def _refused(capsys, out: Path, said: str, *words: str) -> None:
    assert reproduce("--only", "fig11", "--out", str(out), *words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"policy-net: --out {out}: ") or line.startswith(f"policy-net: {out}")
    assert said in line


def test_a_folder_with_results_of_other_settings_is_refused(tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    assert reproduce("--only", "fig11", "--out", str(out)) == 0
    capsys.readouterr()
    before = sorted(path.name for path in out.iterdir())
    _refused(capsys, out, "holds results of other settings (seed)", "--seed", "1")
    assert sorted(path.name for path in out.iterdir()) == before


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    _refused(capsys, tmp_path / "mine", "holds something else")
    (tmp_path / "file").write_text("")
    _refused(capsys, tmp_path / "file", "cannot be written")
    _refused(capsys, tmp_path / "file" / "below", "cannot be written")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "settings.json").write_text("{")
    assert reproduce("--only", "fig11", "--out", str(tmp_path / "damaged")) == 2
    assert "settings.json: is damaged" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    _refused(capsys, tmp_path / "out", "not writable")


def test_a_folder_in_which_another_run_works_is_refused(tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    assert reproduce("--only", "fig11", "--out", str(out)) == 0
    capsys.readouterr()
    with FileLock(out / "lock"):
        _refused(capsys, out, f"another run (process {os.getpid()}) works there")

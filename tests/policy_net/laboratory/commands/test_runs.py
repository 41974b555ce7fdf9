"""Training runs side by side, from `policy-net train --run` to the page."""

import json
import re
from pathlib import Path

import pytest

from foundation.command_line import run
from policy_net.cli import app
from policy_net.laboratory.report.runs_page import charts_of_runs, runs_page
from policy_net.laboratory.training_runs import RunRecorder, read_run

EVIL = "<script>alert(1)</script>"


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(app, "policy-net", list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Two runs that have ended, with different seeds, and one that was killed."""
    for name, seed in (("a", 1), ("b", 2), ("killed", 2)):
        recorder = RunRecorder(tmp_path / name, {"policy": "set", "world": {"seed": seed}, "steps": 3}, lambda: 7.0)
        for step in (1, 2, 3):
            recorder.point("evolution: average JCT [s]", step, 3, 1000.0 * seed - step)
        if name != "killed":
            recorder.end({"updates": 3, "validation_change": -0.01 * seed})
    return [str(tmp_path / name) for name in ("a", "b", "killed")]


def test_a_table_says_what_came_of_each_and_what_differs(
    folders: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    code, out, err = typed(capsys, "runs", *folders)
    assert (code, err) == (0, "")
    assert re.search(r"^a +ended +3 of 3 +997 +−1% +3 +0 +simulation: seed 1$", out, re.MULTILINE)
    assert re.search(r"^killed +not ended +3 of 3 +1997 +– +– +– +simulation: seed 2$", out, re.MULTILINE)
    assert "below 0 is better" in out


def test_a_run_that_was_interrupted_says_how_far_it_came_also_where_there_is_little_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for name, figures in (
        ("dl2-run", ["imitation: cross-entropy", "actor-critic: reward of a decision (slot-utility)"]),
        ("set-run", ["evolution: average JCT [s]"]),
        ("set-two", ["evolution: average JCT [s]"]),
    ):
        recorder = RunRecorder(tmp_path / name, {"policy": name, "steps": 400}, lambda: 7.0)
        for figure in figures:
            for step in range(1, 45):
                recorder.point(figure, step, 400, 1234.0)
    begun = RunRecorder(tmp_path / "begun", {"policy": "dl2", "steps": 400}, lambda: 7.0)
    begun.point("imitation: cross-entropy", 7, 7, 0.5)
    names = ["dl2-run", "set-run", "set-two", "begun"]
    out = typed(capsys, "runs", *(str(tmp_path / name) for name in names))[1]
    assert max(map(len, out.splitlines())) <= 60
    assert re.search(r"^set-run +not ended +44 of 400 +1234\b", out, re.MULTILINE)
    assert re.search(r"^begun +not ended +0 of 400\b", out, re.MULTILINE)
    facts = json.loads(typed(capsys, "runs", str(tmp_path / "set-run"), "-o", "json")[1])
    assert (facts[0]["steps_done"], facts[0]["steps"], facts[0]["state"]) == (44, 400, "not ended")


def test_programs_get_the_curves_or_a_line_a_run(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    first, _, killed = json.loads(typed(capsys, "runs", *folders, "-o", "json")[1])
    assert (first["run"], first["ended"], killed["ended"]) == ("a", True, False)
    assert (first["steps_done"], first["steps"]) == (3, 3)
    assert first["settings"] == {"policy": "set", "world.seed": 1, "steps": 3}
    assert first["curves"] == {"evolution: average JCT [s]": [[1, 999.0], [2, 998.0], [3, 997.0]]}
    assert typed(capsys, "runs", *folders, "-o", "csv")[1].splitlines() == [
        "run,state,world.seed,validation_change,updates,seconds",
        "a,ended,1,-0.01,3,0.0",
        "b,ended,2,-0.02,3,0.0",
        "killed,not ended,2,,,",
    ]


def test_runs_are_looked_at_until_all_have_ended(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    recorder = RunRecorder(tmp_path / "goes-on", {"policy": "set", "steps": 3}, lambda: 7.0)
    recorder.point("evolution: average JCT [s]", 1, 3, 999.0)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        recorder.end({"updates": 3})

    monkeypatch.setattr("policy_net.laboratory.commands.runs.time.sleep", pause)
    code, out, err = typed(
        capsys, "runs", folders[0], str(tmp_path / "goes-on"), "--watch", "--every", "0.5", "-o", "json"
    )
    assert (code, err, pauses) == (0, "", [0.5])
    looks = [json.loads(line) for line in out.splitlines()]
    assert [[run["state"] for run in look] for look in looks] == [["ended", "not ended"], ["ended", "ended"]]
    code, out, err = typed(capsys, "runs", *folders, "--watch", "--report", str(tmp_path / "page.html"))
    assert (code, out) == (2, "")
    assert err == "policy-net: --report and --watch do not go together: a page is written once\n"


def test_the_page_is_one_file_that_loads_nothing(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert typed(capsys, "runs", *folders, "--report", str(page))[0] == 0
    text = page.read_text(encoding="utf-8")
    assert "simulation: seed" in text
    assert "world.seed" not in text
    names = re.findall(r"<(?:dt|th)[^>]*>([^<]*)<", text)
    assert "validation change" in names
    assert [name for name in names if "_" in name] == []
    assert "so that there are no final figures: killed" in text
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert len(sources) == 1
    assert sources[0].startswith("data:image/svg+xml;base64,")
    assert "<script" not in text
    assert "http" not in re.sub(r'<meta http-equiv="Content-Security-Policy"', "", text)
    (chart,) = charts_of_runs([read_run(Path(folder)) for folder in folders])
    assert chart.alt == "evolution: average JCT [s] by step, at the end: a 997, b 1997, killed 1997"
    assert chart.alt in text


def test_the_page_is_the_same_each_time_and_nothing_in_it_is_obeyed(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "a", {"workloads": EVIL})
    recorder.point(f"{EVIL} $\\frac{{$", 1, 1, 1.0)
    recorder.end({EVIL: EVIL})
    found = [read_run(tmp_path / "a")]
    assert runs_page(found) == runs_page(found)
    assert "<script" not in runs_page(found)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "nowhere: holds no run (No such file or directory); name a folder that"),
        (["a"] * 25, "25 runs are too many to compare: name 24 at most"),
        (["a", "--report", "."], "cannot be written"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_line(
    folders: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(capsys, "runs", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "figures"),
    [
        (
            ["--config", "FEW", "--steps", "5", "--imitate", "drf", "--imitation-steps", "4"],
            ["imitation: cross-entropy", "groups: utility of a state", "groups: average JCT on validation [s]"],
        ),
        (
            ["--policy", "dl2", "--steps", "5", "--reward", "slot-utility"],
            ["actor-critic: reward of a decision (slot-utility)"],
        ),
        (["--policy", "set", "--steps", "2", "--from", "SHIPPED"], ["evolution: average JCT [s]"]),
    ],
)
def test_training_writes_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], figures: list[str]
) -> None:
    from policy_net.set_policy.policy import default_set_file

    (shipped := tmp_path / "shipped.safetensors").write_bytes(default_set_file().to_bytes())
    given = {"SHIPPED": str(shipped), "FEW": str(Path(__file__).with_name("few.yaml"))}
    words = [given.get(word, word) for word in words]
    where = ["--workload", "dl2:jobs=3", "--nodes", "2", "--out", str(tmp_path / "p"), "--run", str(tmp_path / "r")]
    assert typed(capsys, "train", *where, *words)[0] == 0
    found = read_run(tmp_path / "r")
    assert [curve.figure for curve in found.curves] == figures
    steps = {"imitation": 4, "groups": 5, "actor-critic": 5, "evolution": 2}
    for curve in found.curves:
        assert [step for step, _ in curve.points] == list(range(1, steps[curve.figure.partition(":")[0]] + 1))
    assert found.settings["world.nodes"] == 2
    assert found.settings["workloads"] == "dl2:jobs=3"
    assert found.final["parameters"] > 0
    again = typed(capsys, "train", *where, *words)
    assert (again[0], "holds a run already" in again[2]) == (2, True)


def test_people_get_words_units_and_the_settings_of_the_way_that_was_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    clock = iter([0.0, 30_362.4, 0.0, 15_000.0])
    for name, stall in (("a", 90.0), ("b", 5400.0)):
        settings = {
            "policy": "set",
            "max_seconds": 36_000.0,
            "training": {"method": "evolution", "pairs": 16, "twin": {"pairs": 4, "window_jobs": 500}},
            "world": {"seed": 1, "resize_seconds": stall},
        }
        recorder = RunRecorder(tmp_path / name, settings, lambda: next(clock))
        recorder.end({"spec": {"policy": "set", "hidden": "", "set_feature_version": 1}, "updates": 3})
    runs = [str(tmp_path / name) for name in ("a", "b")]
    code, out, err = typed(capsys, "runs", *runs, "--report", str(tmp_path / "page.html"))
    assert (code, err) == (0, "")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    cells = re.findall(r"<(?:dt|dd|th|td)[^>]*>([^<]*)<", page)
    for text in ("took [h]", "8.4", "4.2", "simulation: stall of a resize [min]", "1.5", "90.0", "time limit", "10 h"):
        assert text in cells, text
    assert "policy: version of the features" in cells
    assert "pairs" in cells
    assert "twin" not in page, "a way to train that was not taken"
    for raw in ("spec.", "world.", "training.", "30362", "36000"):
        assert raw not in out
        assert raw not in page
    assert re.search(r"^a +ended .* simulation: stall of a resize 90 s$", out, re.MULTILINE)
    assert "training.twin.pairs" in json.loads(typed(capsys, "runs", *runs, "-o", "json")[1])[0]["settings"]
    assert typed(capsys, "runs", *runs, "-o", "csv")[1].startswith("run,state,world.resize_seconds,updates,seconds,")

"""Files of an all-reduce job: what a kill leaves amid a write is written over by whoever goes on."""

from pathlib import Path

from elastic_runtime.checkpoint.rank_files import RankFiles, RankProgress


def test_half_a_hint_of_one_that_was_killed_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "progress.json.partial").write_text('{"step": 3, "sam', encoding="utf-8")
    files = RankFiles(tmp_path)
    files.tell(RankProgress(step=4), at_once=True)
    assert files.progress() == RankProgress(step=4)
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]

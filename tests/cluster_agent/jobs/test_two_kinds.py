"""Jobs of one type that train in two ways: each gets its share, and is foreseen by what its own kind has shown."""

from __future__ import annotations

from deciding import Deciding, submit
from job_shell import Shell

from policy_net.policy import DEFAULT_POLICY


def test_a_script_that_trains_in_another_way_than_before_gets_its_share_too(shell: Shell) -> None:
    """As all-reduce, or of a fixed size, under the name by which its speed with parameter servers is known."""
    deciding = Deciding(shell, DEFAULT_POLICY)
    submit(shell, "servers", "--model-type", "train", "--workers", "1-2", "--ps", "1-2")
    for _ in range(3):
        deciding.once()
    assert deciding.seen.allocations_seen("train"), "it was measured"
    ring, fixed = ["communication: AllReduce", "worker: {max: 2}"], ["elastic: false", "worker: {replicas: 1}"]
    for name, words in (("ring", ring), ("fixed", fixed)):
        content = [f"name: {name}", "modelType: train", "script: train.py", *words]
        (shell.folder / f"{name}.yaml").write_text("\n".join(content), encoding="utf-8")
        assert shell.type("submit", str(shell.folder / f"{name}.yaml")).code == 0
    for _ in range(4):  # nothing says how much the two have to do, and they soon end
        deciding.once()
    reported = {job["name"]: job["state"] for job in shell.type("jobs", "-o", "json").json}
    assert reported == {"servers": "running", "ring": "done", "fixed": "done"}
    assert deciding.seen.allocations_seen("train-allreduce"), "and its speed as all-reduce is known for itself"
    assert not any(deciding.guard.counts.values()), "nobody had to step in"


def test_the_other_kind_is_foreseen_by_what_it_has_shown_itself(shell: Shell) -> None:
    deciding = Deciding(shell, "fifo")
    submit(shell, "servers", "--model-type", "train", "--epochs", "4")
    content = "{name: ring, modelType: train, script: train.py, communication: AllReduce, work: {epochs: 4}}"
    (shell.folder / "ring.yaml").write_text(content, encoding="utf-8")
    assert shell.type("submit", str(shell.folder / "ring.yaml")).code == 0
    while not all(job["ended"] for job in shell.type("jobs", "-o", "json").json):
        deciding.once()
    answer = shell.type("simulate", str(shell.folder / "ring.yaml"), "-o", "json").json
    assert not any("a guess" in note for note in answer["notes"])
    assert answer["notes"] == ["train-allreduce was measured with 1 worker only: at other sizes its speed is reckoned"]

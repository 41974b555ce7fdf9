"""Work that was stated with a job and is far from what it trains: its user is told, and nothing is learned of it."""

from __future__ import annotations

import pytest
from deciding import Deciding, submit
from job_shell import Shell

from cluster_agent.backends.local.recorded_ends import with_ends_since
from policy_net.laboratory.workloads.decided import read_recorded
from policy_net.set_policy.beliefs import SetBeliefs

FILE = """
modelType: train
work: {{{}}}
worker: {{max: 1}}
ps: {{max: 1}}
script: train.py
"""


def reported(shell: Shell, name: str) -> str:
    """The note, as the list of the jobs and the sheet of one have it."""
    (facts,) = [row for row in shell.type("jobs", "-o", "json").json if row["name"] == name]
    note = str(facts["note"])
    assert note in " ".join(shell.type("job", name).out.split())
    return note


def start(shell: Shell, work: str, trains_epochs: float, *, says_total: bool) -> Deciding:
    said = shell.type("submit", shell.file("job.yaml", FILE.format(work)), "--name", "one")
    assert said.code == 0, said.err
    (record,) = shell.world.backend.table
    job = shell.world.open_job(record)
    job.trains_epochs, job.says_total = trains_epochs, says_total
    return Deciding(shell, "set")


@pytest.mark.parametrize(
    ("work", "trains", "line"),
    [
        ("epochs: 40", 5.0, "said 40 epochs, trained 5: say that next time"),
        ("epochs: 1", 2.5, "said 1 epoch, trained 2.5: say that next time"),
        ("steps: 1200", 2.0, "said 1,200 steps, trained 20: say that next time"),
        ("epochs: 5", 3.0, ""),
        ("epochs: 3", 5.0, ""),
        ("steps: 30", 2.0, ""),
    ],
)
@pytest.mark.parametrize("says_total", [True, False])
def test_one_that_is_done_after_half_or_twice_what_was_stated_says_so(
    shell: Shell, work: str, trains: float, line: str, says_total: bool
) -> None:
    deciding = start(shell, work, trains, says_total=says_total)
    for _ in range(8):
        if not shell.world.backend.table.unended:
            break
        deciding.once()
    deciding.recorder.close()
    assert reported(shell, "one") == line
    waited = shell.type("submit", "--name", "two", "--suspend", "--", "python", "train.py")
    assert waited.code == 0, waited.err
    shell.world.restart()  # what is told of a job that has ended does not hang on who saw its end
    assert shell.world.backend.facts(next(iter(shell.world.backend.table)))["note"] == line


def test_while_it_trains_what_its_script_says_is_told_at_once_and_what_it_has_done_from_twice_as_much_on(
    shell: Shell,
) -> None:
    deciding = start(shell, "epochs: 40", 5.0, says_total=True)
    deciding.once()
    assert reported(shell, "one") == "said 40 epochs, its script says 5"


def test_one_that_trains_on_is_told_of_when_it_has_done_twice_what_was_stated(shell: Shell) -> None:
    deciding = start(shell, "epochs: 1", 50.0, says_total=False)
    deciding.once()
    assert reported(shell, "one") == ""
    for _ in range(2):
        deciding.once()
    note = reported(shell, "one")
    assert note.startswith("said 1 epoch, has trained 2.")
    assert note.endswith(" already")


def test_what_is_learned_of_work_is_what_was_trained_and_not_what_was_stated(shell: Shell) -> None:
    submit(shell, "few", "--epochs", "40", "--workers", "1", "--ps", "1")
    submit(shell, "many", "--epochs", "1", "--workers", "1", "--ps", "1")
    for record in shell.world.backend.table:
        job = shell.world.open_job(record)
        job.trains_epochs, job.says_total = 4.0, False
    deciding = Deciding(shell, "set")
    while shell.world.backend.table.unended:
        deciding.once()
    beliefs = deciding.candidate.beliefs
    assert isinstance(beliefs, SetBeliefs)
    assert sum(beliefs.lifetimes.snapshot()["ended"]) == 1.0, "of unknown work was the one that passed its word"
    done = {"few": pytest.approx(4.0, rel=0.01), "many": pytest.approx(4.0, rel=0.01)}
    past = with_ends_since(read_recorded(shell.folder), shell.folder)
    assert {job.job_id: job.total_epochs for job in past.workload.jobs} == {"few": done["few"]}, "many is left out"
    assert past.jct_seconds.keys() == {"few"}
    submit(shell, "next")
    deciding.once()  # by the next decision the log itself has what was done
    deciding.recorder.close()
    logged = {job.job_id: job.total_epochs for job in read_recorded(shell.folder).workload.jobs}
    assert {name: logged[name] for name in done} == done


def test_steps_are_work_once_it_is_known_how_many_make_an_epoch(shell: Shell) -> None:
    """From what others of the type did; a type of which nobody has trained has unknown work until then."""
    submit(shell, "first", "--model-type", "train", "--epochs", "2")
    deciding = Deciding(shell, "fifo")
    while shell.world.backend.table.unended:
        deciding.once()
    record = shell.world.backend.table.get("first")
    assert record is not None
    assert record.steps_per_epoch > 0.0
    for name, model_type in (("known", "train"), ("new", "another")):
        content = FILE.format("steps: 1000").replace("modelType: train", f"modelType: {model_type}")
        assert shell.type("submit", shell.file(f"{name}.yaml", content), "--name", name).code == 0
    observed = shell.world.backend.observe()
    assert observed is not None
    known, new = observed[0].jobs
    assert known.work_known
    assert known.total_epochs == pytest.approx(1000 / record.steps_per_epoch)
    assert not new.work_known
    foreseen = shell.type("simulate", shell.file("known.yaml", FILE.format("steps: 1000")), "-o", "json").json
    assert not any("does not say its work" in note for note in foreseen["notes"])

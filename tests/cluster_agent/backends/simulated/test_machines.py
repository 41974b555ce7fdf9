"""Machines of a simulated cluster: as the configuration says, else as a recorded log shows, else assumed, and told."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.backends.simulated.backend import SimulatedBackend
from cluster_agent.backends.simulated.episodes import Episodes, load_episodes
from cluster_agent.errors import StateDamaged
from policy_net.domain import Decision

HEADER = "JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES|NodeList"
DAY = "2024-03-04T"
LOG = "\n".join(
    (
        HEADER,
        f"1|{DAY}08:00:00|{DAY}08:10:00|{DAY}10:10:00|7200|COMPLETED|cpu=96,gres/gpu=8,node=1|gpu[1]",
        f"2|{DAY}08:00:00|{DAY}09:00:00|{DAY}09:30:00|1800|FAILED|cpu=4,gres/gpu=2,node=1|gpu2",
        "",
    )
)


def loaded(source: str, **changes: Any) -> tuple[Episodes, list[Any]]:
    """Episodes, and what was logged when they were read."""
    with capture_logs() as logs:
        episodes = load_episodes(SimulatedBackendSettings.model_validate({"workloads": [{"source": source}]} | changes))
    return episodes, logs


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "week.txt"
    path.write_text(LOG)
    return f"sacct:{path}"


def sizes(episodes: Episodes) -> tuple[int, int, int]:
    environment = episodes.items[0].environment
    return environment.nodes, environment.gpus_per_node, environment.cpus_per_node


def test_machines_are_those_that_the_log_shows_and_one_line_says_so(log: str) -> None:
    episodes, logs = loaded(log, episodes=3)
    assert sizes(episodes) == (2, 8, 96)
    [line] = [line for line in logs if line["event"] == "workload-read"]
    assert (line["nodes"], line["gpus_per_node"], line["cpus_per_node"]) == (2, 8, 96)
    assert any(note.startswith("machines in the log: 2 nodes") for note in line["notes"])


def test_what_the_configuration_says_stays_in_force(log: str) -> None:
    episodes, logs = loaded(log, environment={"nodes": 5, "gpus_per_node": 4, "cpus_per_node": 16})
    assert sizes(episodes) == (5, 4, 16)
    assert "machines: as given, not as in the log" in logs[0]["notes"]


def test_assumed_machines_are_told_with_the_settings_that_say_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_time_s,duration_s,num_gpus\na,0,100,4\n")
    episodes, logs = loaded(str(path))
    assert sizes(episodes)[1:] == (2, 8)
    [note] = [note for note in logs[0]["notes"] if note.startswith("machines assumed: 2 GPUs each")]
    assert note.endswith("say nodes, gpus_per_node and cpus_per_node in backend.environment")


def kinds(episodes: Episodes) -> set[str]:
    return {job.kind.value for job in episodes.items[0].workload.jobs}


def workload(source: str, **said: str) -> dict[str, Any]:
    return {"workloads": [{"source": source, **said}]}


def test_recorded_jobs_train_by_all_reduce_as_in_a_replay_unless_said(log: str) -> None:
    assert kinds(loaded(log)[0]) == {"allreduce"}
    assert kinds(loaded(log, **workload(log, job_kind="ps"))[0]) == {"ps"}


def test_what_was_saved_under_the_default_of_before_goes_on_where_its_kind_is_said(log: str, tmp_path: Path) -> None:
    before, _ = loaded(log, **workload(log, job_kind="ps"))
    now, _ = loaded(log)
    assert now.digest_with_ps == before.digest != now.digest
    assert loaded(log, **workload(log, job_kind="allreduce"))[0].digest == now.digest
    live_on(before, tmp_path)
    with pytest.raises(StateDamaged, match=r"write job_kind: ps at each of backend\.workloads to go on with it"):
        live_on(now, tmp_path)
    live_on(before, tmp_path)


def test_what_was_saved_of_jobs_with_a_kind_of_their_own_goes_on_as_it_is() -> None:
    generated = "dl2:jobs=4,seed=3"
    nodes = {"environment": {"nodes": 3}}
    assert (
        loaded(generated, **nodes)[0].digest
        == loaded(generated, **workload(generated, job_kind="ps"), **nodes)[0].digest
    )


def live_on(episodes: Episodes, folder: Path) -> None:
    """One decision of a cluster that is kept in a folder."""
    backend = SimulatedBackend(episodes, folder, lambda _: False)
    observed = backend.observe()
    assert observed is not None
    backend.apply(Decision({job.job_id: job.requested for job in observed[0].jobs[:1]}))


def test_a_saved_simulation_goes_on_only_on_the_machines_that_it_began_on(log: str) -> None:
    seen, _ = loaded(log)
    assert seen.digest == loaded(log, environment={"gpus_per_node": 8, "cpus_per_node": 96})[0].digest
    assert seen.digest != loaded(log, environment={"gpus_per_node": 2, "cpus_per_node": 8})[0].digest
    generated = "dl2:jobs=4,seed=3"
    same, _ = loaded(generated, environment={"nodes": 3, "gpus_per_node": 2, "cpus_per_node": 8})
    assert loaded(generated, environment={"nodes": 3})[0].digest == same.digest

"""Machines, waits and owners of jobs, as far as a log says them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.laboratory.workloads.loaders.record import RecordedJob, even_shares
from policy_net.laboratory.workloads.loaders.sacct import node_names
from policy_net.laboratory.workloads.recorded import ClusterSize, machines_of
from policy_net.laboratory.workloads.sources import load_workload, read_csv, read_recording
from policy_net.laboratory.workloads.workload import FigureOrigin, WorkloadOptions

SAMPLES = Path(__file__).parent / "samples"
SACCT = "JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES|NodeList|User|Account|Partition\n"
DAY = "2024-03-04T"


def sacct(tmp_path: Path, *rows: str) -> str:
    path = tmp_path / "jobs.txt"
    path.write_text(SACCT + "\n".join(rows) + "\n")
    return f"sacct:{path}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[08-10,12],big-a", ["gpu08", "gpu09", "gpu10", "gpu12", "big-a"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
        ("None assigned", []),
        ("", []),
        ("gpu[1", []),
        ("gpu[1-x]", []),
        ("gpu[1-99999999]", []),
        ("gpu[9-1]", []),
    ],
)
def test_a_node_list_of_slurm_becomes_names(text: str, names: list[str]) -> None:
    assert node_names(text) == names


def test_slurms_columns_say_machines_waits_and_owners(tmp_path: Path) -> None:
    recording = read_recording(
        sacct(
            tmp_path,
            f"1|{DAY}08:00:00|{DAY}08:10:00|{DAY}10:10:00|7200|COMPLETED|cpu=64,gres/gpu=8,node=2|a[1-2]|ann|vision|gpu",
            f"2|{DAY}08:00:00|{DAY}09:00:00|{DAY}09:30:00|1800|FAILED|cpu=12,gres/gpu=3,node=1|a1|bob|speech|gpu",
            f"3|{DAY}08:00:00|{DAY}07:59:59|{DAY}08:30:00|1800|FAILED|cpu=4,gres/gpu=1,node=1|a3|bob|speech|gpu",
        ),
        strict=True,
    )
    first, second, third = recording.records
    assert [(job.wait_seconds, job.jct_seconds) for job in (first, second)] == [(600, 7800), (3600, 5400)]
    assert third.wait_seconds is None  # clocks that differ are no wait of less than nothing
    assert (first.user, first.account, first.partition) == ("ann", "vision", "gpu")
    # On a1 4 of the first job's GPUs and 3 of the second's at 9:00, and 32 and 12 cores.
    assert machines_of(recording.records) == ClusterSize(nodes=3, gpus_per_node=7, cpus_per_node=44)


def test_philly_and_kubernetes_name_their_machines(tmp_path: Path) -> None:
    philly = read_recording(f"philly:{SAMPLES / 'cluster_job_log'}", strict=True).records
    assert machines_of(philly) == ClusterSize(nodes=4, gpus_per_node=4, cpus_per_node=0)
    assert [(job.wait_seconds, job.user, job.partition) for job in philly] == [(60, "u1", "red"), (120, "u2", "blue")]
    helios = read_recording(f"helios:{SAMPLES / 'cluster_log.csv'}", strict=True).records
    assert [(job.wait_seconds, job.jct_seconds, job.user) for job in helios] == [(600, 7800, "uA"), (0, 300, "uB")]
    assert machines_of(helios) is None


def test_our_csv_may_say_starts_owners_and_nodes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_time_s,duration_s,num_gpus,start_time_s,user,account,partition,node_names\n"
        "a,0,100,4,50,ann,vision,gpu,n1 n2\nb,10,100,1,,,,,\n"
    )
    first, second = read_csv(path, strict=True).records
    assert (first.wait_seconds, first.jct_seconds, first.user, first.account, first.partition) == (
        *(50, 150),
        *("ann", "vision", "gpu"),
    )
    assert machines_of([first]) == ClusterSize(2, 2, 0)
    assert (second.wait_seconds, second.jct_seconds, second.shares) == (None, None, ())


def test_machines_are_as_given_else_as_the_log_shows_else_assumed_and_the_notes_say_which(tmp_path: Path) -> None:
    source = sacct(
        tmp_path,
        f"1|{DAY}08:00:00|{DAY}08:10:00|{DAY}10:10:00|7200|COMPLETED|cpu=96,gres/gpu=8,node=1|a[1]|ann|vision|gpu",
        f"2|{DAY}08:00:00|{DAY}09:00:00|{DAY}09:30:00|1800|FAILED|cpu=4,gres/gpu=2,node=1|a2|bob|speech|gpu",
    )
    seen = load_workload(source)
    assert seen.machines is not None
    assert (seen.suggested_nodes, seen.machines.gpus_per_node, seen.machines.cpus_per_node) == (2, 8, 96)
    assert {seen.machines.nodes_by, seen.machines.gpus_by, seen.machines.cpus_by} == {FigureOrigin.LOG}
    assert any(note.startswith("machines in the log: 2 nodes") for note in seen.notes)
    given_ones = load_workload(source, WorkloadOptions(nodes=5, gpus_per_node=4))
    assert given_ones.machines is not None
    assert (given_ones.suggested_nodes, given_ones.machines.gpus_per_node) == (5, 4)
    assert (given_ones.machines.nodes_by, given_ones.machines.gpus_by) == (FigureOrigin.GIVEN, FigureOrigin.GIVEN)
    assert "machines: as given, not as in the log" in given_ones.notes
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_time_s,duration_s,num_gpus\na,0,100,4\n")
    assumed = load_workload(str(path))
    assert assumed.machines is not None
    assert (assumed.machines.gpus_per_node, assumed.machines.cpus_per_node) == (2, 8)
    assert (assumed.machines.nodes_by, assumed.machines.gpus_by) == (FigureOrigin.ASSUMED, FigureOrigin.ASSUMED)
    assert any(note.startswith("machines assumed: 2 GPUs each, 8 CPU cores each") for note in assumed.notes)
    wide = load_workload(str(path), WorkloadOptions(gpus_per_node=8)).machines
    assert wide is not None
    assert wide.cpus_per_node == 32


def test_waits_under_another_load_are_no_measure() -> None:
    source = f"philly:{SAMPLES / 'cluster_job_log'}"
    assert load_workload(source).records["application_1"].wait_seconds == 60
    thinned = load_workload(source, WorkloadOptions(arrival_scale=2.0)).records["application_1"]
    assert (thinned.wait_seconds, thinned.jct_seconds, thinned.user) == (None, None, "u1")


spans = st.tuples(
    st.integers(0, 50), st.integers(0, 20), st.integers(1, 8), st.lists(st.sampled_from("abc"), max_size=3)
)


@given(st.lists(spans, min_size=1, max_size=12))
def test_no_node_ever_held_more_than_is_seen_of_one(drawn: list[tuple[int, int, int, list[str]]]) -> None:
    jobs = []
    for number, (start, length, gpus, names) in enumerate(drawn):
        nodes = sorted(set(names))
        shares = even_shares(nodes, gpus, start, start + length)
        assert sum(share.gpus for share in shares) >= gpus or not nodes
        jobs.append(RecordedJob(number, str(number), start, length, gpus, shares=shares))
    seen = machines_of(jobs)
    shares = [share for job in jobs for share in job.shares]
    if seen is None:
        assert not shares
        return
    assert seen.nodes == len({share.node for share in shares})
    held = [
        sum(s.gpus for s in shares if s.node == node and s.start_seconds <= moment < s.end_seconds)
        for node in "abc"
        for moment in range(80)
    ]
    assert seen.gpus_per_node == max(held)

"""The answer of `policy-net replay` on recorded jobs: its last sentence, and what stands beside it."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
import yaml

from foundation import command_line
from policy_net.cli import app

HEADER = "JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES|NodeList|User|Account|Partition"
POLICIES = ["--policy", "fifo", "--policy", "fifo-easy", "--policy", "set"]


def moment(minutes: int) -> str:
    return f"2024-03-0{4 + minutes // 1440}T{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def job(number: int, submit: int, wait: int, minutes: int, gpus: int, user: str, node: str) -> str:
    start = submit + wait
    return "|".join(
        [
            *(str(number), moment(submit), moment(start), moment(start + minutes), str(minutes * 60), "COMPLETED"),
            *(f"cpu={4 * gpus},gres/gpu={gpus},node=1", node, user, "vision" if user == "ann" else "speech", "gpu"),
        ]
    )


@pytest.fixture
def week(tmp_path: Path) -> Path:
    """Two users on two nodes of 4 GPUs, of which jobs ask for more than there are at a time."""
    rows = [
        job(number, 10 * number, 7 * number, 60 + 30 * (number % 3), 4 if number % 4 == 0 else 1,
            "ann" if number % 2 else "bob", f"gpu[{1 + number % 2}]")
        for number in range(24)
    ]  # fmt: skip
    path = tmp_path / "week.txt"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def run(*words: str) -> int:
    return command_line.run(app, "policy-net", ("replay", *words))


def test_the_terminal_ends_with_the_answer_and_its_range(week: Path, capsys) -> None:
    assert run("--workload", f"sacct:{week}", *POLICIES) == 0
    out, err = capsys.readouterr()
    words = " ".join(out.split())
    answer = words[words.rindex("Your 24 jobs would have been done in ") :]
    assert ", by what is assumed)" in answer
    assert ", if all your jobs can be resized. Against your record (" in answer
    assert "The machines are assumed" not in answer
    assert "54 of 54 sets of assumptions were replayed. What moves it most by itself is " in words
    assert "infer" not in out
    assert "machines in the log: 2 nodes" in err


def test_few_jobs_are_cautioned_against_on_the_terminal_and_in_the_json(tmp_path: Path, capsys) -> None:
    caution = "With 99 jobs much is chance: take 100 or more, better a thousand."
    path, header = tmp_path / "jobs.csv", "job_id,submit_time_s,duration_s,num_gpus"
    for count in (99, 100):
        path.write_text("\n".join([header, *(f"{number},{90 * number},600,2" for number in range(count))]) + "\n")
        policies = ["--policy", "fifo", "--policy", "drf"]
        assert run("--workload", str(path), *policies, "--range", "0") == 0
        assert (f"Caution: {caution}" in " ".join(capsys.readouterr().out.split())) == (count == 99)
        assert run("--workload", str(path), *policies, "-o", "json") == 0
        answer = json.loads(capsys.readouterr().out)[1]["answer"]
        assert (caution in answer["cautions"]) == (count == 99)
        assert run("--workload", str(path), "--policy", "drf", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)[0]["answer"]["cautions"] == [], "nothing is compared"


def test_short_jobs_in_bursts_wait_for_room_in_a_queue_and_for_the_pace_of_an_agent_alone(
    tmp_path: Path, capsys
) -> None:
    # Bursts of five jobs of 20 s on room for four, an hour apart: one of five waits some 20 s for room.
    path, header = tmp_path / "jobs.csv", "job_id,submit_time_s,duration_s,num_gpus"
    rows = [f"{burst}-{number},{3600 * burst + number},20,2" for burst in range(20) for number in range(5)]
    path.write_text("\n".join([header, *rows]) + "\n")
    machines = ("--nodes", "2", "--gpus-per-node", "4", "--cpus-per-node", "32")
    words = ("--workload", str(path), *machines, "--policy", "fifo-easy", "--policy", "set")
    found = {}
    for pace in ("60", "10", "0"):
        assert run(*words, "--debounce-seconds", pace, "-o", "json") == 0
        queue, agent = found[pace] = json.loads(capsys.readouterr().out)
        assert queue["gpu_hours"] == pytest.approx(100 * 2 * 20 / 3600)
        assert queue["avg_wait_seconds"] == pytest.approx(16 / 5), (
            "the fifth of a burst comes at 4 s and starts at 20 s"
        )
        assert agent["gpu_utilization"] == pytest.approx(agent["gpu_training_share"])
    paced, unpaced = (found[pace][1]["avg_jct_seconds"] for pace in ("60", "0"))
    assert paced > unpaced
    said = {pace: [line for line in rows[1]["answer"]["cautions"] if "--debounce-seconds" in line]
            for pace, rows in found.items()}  # fmt: skip
    assert said["0"] == []
    (caution,) = said["60"]
    assert (
        f"at most once in 60 s here; at every event, as queues do, its jobs would be done in {unpaced:.3g} s" in caution
    )
    assert f"instead of {paced:.3g} s on average" in caution


@pytest.mark.parametrize(("skipped", "said"), [(0, False), (5, False), (6, True), (100, True)])
def test_a_log_of_which_much_is_skipped_says_so_beside_the_answer(
    skipped: int, said: bool, tmp_path: Path, capsys
) -> None:
    path = tmp_path / "jobs.csv"
    rows = [f"{number},{90 * number},600,2" for number in range(100)]
    path.write_text("\n".join(["job_id,submit_time_s,duration_s,num_gpus", *rows, *rows[:skipped]]) + "\n")
    caution = (
        f"{skipped} lines of the log, {skipped / (100 + skipped):.0%} of it, are skipped as malformed, like this one:"
        f" {path}, line 102: job_id '0' stands in line 2 too; give every job its own id. The answer is about the jobs"
        " that are left."
    )
    for policies in (["--policy", "fifo", "--policy", "drf"], ["--policy", "drf"]):
        assert run("--workload", str(path), *policies, "--range", "0") == 0
        assert (f"Caution: {caution}".replace(" ", "") in "".join(capsys.readouterr().out.split())) == said
        assert run("--workload", str(path), *policies, "-o", "json") == 0
        assert (caution in json.loads(capsys.readouterr().out)[-1]["answer"]["cautions"]) == said


def test_recorded_waits_stand_above_the_simulated_ones(week: Path, capsys) -> None:
    assert run("--workload", f"sacct:{week}", *POLICIES, "--range", "0") == 0
    out = capsys.readouterr().out
    rows = [line.split()[0] for line in out.splitlines() if line.split()[:1] and line.split()[0] in
            ("(recorded)", "fifo", "fifo-easy", "set")]  # fmt: skip
    assert rows == ["(recorded)", "fifo", "fifo-easy", "set"]
    recorded = next(line for line in out.splitlines() if "(recorded)" in line).split()
    average = sum(7 * number for number in range(24)) / 24
    assert recorded[2] == f"{average:.2f}"
    assert "As recorded: Really the jobs waited " in " ".join(out.split())
    assert "by what is assumed" not in out


def test_a_log_that_names_no_machines_on_fewer_than_it_had_has_one_caution_about_them(
    week: Path, tmp_path: Path, capsys
) -> None:
    columns = [HEADER.split("|").index(name) for name in HEADER.split("|") if name != "NodeList"]
    rows = [line.split("|") for line in week.read_text().splitlines()]
    path = tmp_path / "unnamed.txt"
    lines = ["|".join(row[column] for column in columns) for row in rows]
    path.write_text("\n".join([lines[0].replace("AllocTRES", "ReqTRES"), *lines[1:]]) + "\n")
    words = ("--workload", f"sacct:{path}", *POLICIES, "-o", "json")
    assert run(*words, "--nodes", "1", "--gpus-per-node", "4", "--cpus-per-node", "16") == 0
    rows = json.loads(capsys.readouterr().out)
    cautions = next(row["answer"] for row in rows if row["answer"])["cautions"]
    assert len(cautions) == 2, "and that the jobs are few"
    assert cautions[1].startswith("At its busiest the log has ")
    for fact in (
        "GPUs in use at once, and there are 4 here: machines are missing, and jobs wait longer here than they did"
        " (simulated under EASY backfill ",
        " on average for their first start, really ",
        ", so there is more to save. The jobs are done in ",
        "% more time than was recorded (",
        "Besides, your queue may let more jobs pass, or jobs did not have the sizes that they asked for.",
        "Believe the change less than that difference, and give the machines that ran these jobs.",
    ):
        assert fact in cautions[1]


def test_the_same_figures_are_in_the_json(week: Path, capsys) -> None:
    assert run("--workload", f"sacct:{week}", *POLICIES, "-o", "json", "--range", "6") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["fifo", "fifo-easy", "set"]
    assert rows[0]["recorded"]["wait_jobs"] == 24
    assert rows[0]["recorded"]["avg_wait_seconds"] == pytest.approx(60 * sum(7 * n for n in range(24)) / 24)
    assert [row["range"] is None for row in rows] == [True, True, False]
    found = rows[2]["range"]
    change = rows[2]["avg_jct_seconds"] / rows[1]["avg_jct_seconds"] - 1
    assert found["against"] == "fifo-easy"
    assert (found["replayed"], found["planned"]) == (7, 54)
    assert found["least_change"] <= change <= found["most_change"]
    assert [row["answer"] is None for row in rows] == [True, True, False]
    answer = rows[2]["answer"]
    assert (answer["policy"], answer["against"]) == ("set", "fifo-easy")
    assert answer["change"] == pytest.approx(change)
    assert answer["avg_jct_seconds"] == pytest.approx(rows[2]["avg_jct_seconds"])
    assert answer["against_avg_jct_seconds"] == pytest.approx(rows[1]["avg_jct_seconds"])
    assert (answer["least_change"], answer["most_change"]) == (found["least_change"], found["most_change"])
    assert answer["sentence"].startswith("Your 24 jobs would have been done in ")
    assert rows[0]["gpu_hours"] > 0
    assert rows[0]["slot_decide_p99_ms"] > 0


def test_programs_get_the_answer_without_a_range_unless_they_ask(week: Path, capsys) -> None:
    assert run("--workload", f"sacct:{week}", *POLICIES, "-o", "json") == 0
    *_, row = json.loads(capsys.readouterr().out)
    assert row["range"] is None
    assert (row["answer"]["least_change"], row["answer"]["most_change"]) == (None, None)
    assert row["answer"]["change"] < 0
    assert run("--workload", f"sacct:{week}", "--policy", "drf", "-o", "json", "--range", "2") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["answer"]["policy"], row["answer"]["against"], row["answer"]["change"]) == ("drf", None, None)


def test_jobs_beyond_the_cluster_are_counted_in_the_answer(week: Path, capsys) -> None:
    words = ["--workload", f"sacct:{week}", *POLICIES, "--range", "0", "--nodes", "1", "--gpus-per-node", "2"]
    assert run(*words) == 0
    answer = " ".join(capsys.readouterr().out.split())
    assert answer.endswith("But 6 of the 24 jobs asked for more GPUs than these 2 and are cut to what there is.")
    assert run(*words, "-o", "json") == 0
    assert {row["jobs_beyond_cluster"] for row in json.loads(capsys.readouterr().out)} == {6}


@pytest.mark.heavy
def test_machines_that_nobody_named_are_asked_for_in_the_answer(tmp_path: Path, capsys) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_time_s,duration_s,num_gpus\na,0,600,1\nb,60,900,2\n")
    assert run("--workload", str(path), *POLICIES) == 0
    answer = " ".join(capsys.readouterr().out.split())
    assert answer.endswith(
        "The machines are assumed (1 machine with 2 GPUs each): give yours with --nodes and --gpus-per-node."
    )
    assert run("--workload", str(path), *POLICIES, "--nodes", "1", "--gpus-per-node", "4") == 0
    assert "The machines are assumed" not in capsys.readouterr().out


def test_what_the_user_says_is_not_varied(week: Path, capsys) -> None:
    words = ["--workload", f"sacct:{week}", *POLICIES, "--job-kind", "ps", "--resize-seconds", "30"]
    words += ["--elastic-share", "0.5"]
    assert run(*words) == 0
    words_said = " ".join(capsys.readouterr().out.split())
    assert "Over the seed that draws their models the answer is " in words_said
    assert "3 of 3 sets of assumptions" in words_said
    assert ", if 50% of your jobs can be resized." in words_said


def test_users_and_accounts_have_tables_and_who_waits_longer_is_said(week: Path, capsys) -> None:
    by = ["--by", "user", "--by", "partition"]
    assert run("--workload", f"sacct:{week}", *POLICIES, "--range", "0", *by) == 0
    out, err = capsys.readouterr()
    assert "week by user" in out
    assert any(line.split()[:2] == ["ann", "12"] for line in out.splitlines())
    said = " ".join(out.split())
    assert "Fairness by user: Of 2 users " in said
    assert "Fairness by account: Of 2 accounts " in said
    assert "Fairness by partition" not in said
    assert "--by partition: the log names no two of them" in err


def test_a_price_makes_gpu_hours_money(week: Path, capsys) -> None:
    assert run("--workload", f"sacct:{week}", *POLICIES, "--range", "0", "--gpu-hour-price", "2.5") == 0
    assert "Money: At 2.50 a GPU-hour, these jobs cost " in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("decide_on", ["slot", "event"])
def test_a_year_of_jobs_that_came_at_once_costs_no_more_than_their_machines(
    decide_on: str, tmp_path: Path, capsys
) -> None:
    log = tmp_path / "m.csv"
    rows = "".join(f"job-{number},{60 * number},{10 * 3600},2\n" for number in range(3))
    log.write_text("job_id,submit_time_s,duration_s,num_gpus\n" + rows, encoding="utf-8")
    machines = ("--nodes", "1", "--gpus-per-node", "2", "--gpu-hour-price", "2.5", "--decide-on", decide_on)
    assert run("--workload", str(log), "--policy", "fifo", "--policy", "drf", *machines, "--range", "0") == 0
    found = re.search(r"a year like these .* costs ([\d,]+) .*? instead of ([\d,]+):", capsys.readouterr().out)
    assert found is not None
    assert all(0 < float(cost.replace(",", "")) <= 2 * 8_760 * 2.5 for cost in found.groups())


def test_generated_jobs_have_an_answer_without_range_or_owners(capsys) -> None:
    assert run("--workload", "dl2:jobs=6,seed=5,mix=wlm+resnext-110", "--policy", "fifo", "--policy", "drf") == 0
    words = " ".join(capsys.readouterr().out.split())
    answer = words[words.rindex("These 6 jobs ") :]
    assert ", on the same " in answer
    assert answer.endswith((" GPUs.", " GPU-hours."))
    assert "How sure" not in words


@pytest.mark.heavy
def test_the_report_has_range_record_and_owners(week: Path, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "report"
    assert run("--workload", f"sacct:{week}", *POLICIES, "--report", str(folder)) == 0
    page = (folder / "index.html").read_text(encoding="utf-8")
    for part in ("by what is assumed", "How sure", "As recorded", "<h2>By user</h2>", "as many as the log names"):
        assert part in page


def test_without_a_policy_those_of_a_report_are_compared(week: Path, capsys) -> None:
    assert run("--workload", f"sacct:{week}", "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["fifo", "fifo-easy", "drf", "optimus", "set-taught"]


def test_csv_has_a_line_a_policy_and_yaml_what_json_has(week: Path, capsys) -> None:
    words = ["--workload", f"sacct:{week}", *POLICIES, "--range", "2"]
    assert run(*words, "-o", "csv") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["policy"] for line in lines] == ["fifo", "fifo-easy", "set"]
    assert [line["range.replayed"] for line in lines] == ["", "", "3"]
    assert float(lines[0]["recorded.wait_jobs"]) == 24
    assert "range" not in lines[0]
    assert run(*words, "-o", "yaml") == 0
    rows = yaml.safe_load(capsys.readouterr().out)
    assert rows[2]["range"]["replayed"] == 3
    assert rows[1]["avg_jct_seconds"] == pytest.approx(float(lines[1]["avg_jct_seconds"]))


def test_each_row_is_said_as_soon_as_it_is_there_and_the_answer_is_one_line(week: Path, capsys) -> None:
    assert run("--workload", f"sacct:{week}", *POLICIES, "--range", "0") == 0
    out, err = capsys.readouterr()
    assert [line.split(" under ")[1].split(",")[0] for line in err.splitlines() if "done: " in line] == [
        "fifo", "fifo-easy", "set"
    ]  # fmt: skip
    assert out.splitlines()[-1].startswith("Your 24 jobs would have been done in ")

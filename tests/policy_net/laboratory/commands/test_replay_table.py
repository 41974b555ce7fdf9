"""Tables of `policy-net replay` at the widths of terminals: whole columns, and no number split."""

import io

import pytest
from rich.console import Console

from policy_net.laboratory.commands.answers import owner_table_on_terminal, replay_table
from policy_net.laboratory.commands.fit_speed import quality_table
from policy_net.laboratory.report.comparison import Recorded
from policy_net.laboratory.report.tables import TableRow, TextTable
from policy_net.laboratory.speeds.measured_speeds import FitQuality

ROW = {
    "policy": "fifo-backfill", "jobs": 1000, "completed": 1000, "avg_wait_seconds": 126_108.0,
    "avg_jct_seconds": 183_348.0, "p99_jct_seconds": 961_704.0, "max_jct_seconds": 1_513_656.0,
    "makespan_seconds": 2_529_288.0, "gpu_utilization": 0.62, "gpu_hours": 31467.2, "inference_p50_us": 242.1,
    "slot_decide_p99_ms": 36.4, "wall_seconds": 23.0,
}  # fmt: skip
FILE = {**ROW, "policy": "/home/somebody/experiments/2024/of-a-long-name/set-v7.safetensors"}
RECORDED = Recorded(1000, 1000, 3600.0, 7200.0, None)


def lines_of(table: object, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(table)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("timing", [False, True])
def test_at_every_width_each_row_is_one_line_with_whole_numbers(width: int, timing: bool) -> None:
    lines = lines_of(replay_table("week", [ROW, FILE], recorded=RECORDED, timing=timing), width)
    assert all(len(line) <= width for line in lines)
    rows = [line for line in lines if "50.93" in line or "(recorded)" in line]
    assert len(rows) == 3
    assert "35.03" in rows[1]  # the wait
    assert rows[0].split()[:3] in (["(recorded)", "1.00", "2.00"], ["(recorded)", "–", "1.00"])
    assert "…" not in rows[1]
    assert rows[2].split()[0].endswith("set-v7.safetensors"[-10:])
    assert ("decide" in lines[1]) == (timing and width == 120)


@pytest.mark.parametrize(
    ("seconds", "unit", "shown"),
    [(5.0, "[s]", "5.00"), (600.0, "[min]", "10.00"), (9000.0, "[h]", "2.50"), (900_000.0, "[h]", "250.00")],
)
def test_times_are_in_the_unit_of_the_averages(seconds: float, unit: str, shown: str) -> None:
    row = {**ROW, "avg_jct_seconds": seconds, "gpu_hours": 0.034}
    out = "\n".join(lines_of(replay_table("week", [row]), 120))
    assert [out.count(name) for name in ("[s]", "[min]", "[h]")] == [
        5 * (name == unit) for name in ("[s]", "[min]", "[h]")
    ]
    assert shown in out
    assert "0.034" in out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_quality_of_a_fit_fits_too(width: int) -> None:
    quality = FitQuality("inception-bn", 256, 12, "surface", 0.0123, 0.2345, 0.0456, 16, 11)
    lines = lines_of(quality_table("/data/measured.csv", [quality]), width)
    assert all(len(line) <= width for line in lines)
    row = next(line for line in lines if "inception-bn" in line)
    assert "1.2%" in row
    assert ("12" in row.split()) == (width >= 80)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_of_users_fits_and_keeps_both_sides_of_what_is_compared(width: int) -> None:
    cells = ("31", "1,234", "2.3", "2.0", "3.1 ▲", "11.8", "12.5", "6% more", "61%")
    table = TextTable(
        ("Account", "Jobs", "GPU-hours asked for", "Recorded wait [h]", "Wait, EASY backfill [h]",
         "Wait, fedl2 (set-taught) [h]", "Completion, EASY backfill [h]", "Completion, fedl2 (set-taught) [h]",
         "Change", "Done later"),
        (TableRow("vision-lab", cells), TableRow("4 others", cells)),
        ("▲ waits longer for its first start",),
    )  # fmt: skip
    lines = lines_of(owner_table_on_terminal("week by account", table), width)
    assert all(len(line) <= width for line in lines)
    row = next(line for line in lines if "vision-lab" in line)
    for least, cell in ((60, "2.0"), (60, "3.1 ▲"), (60, "11.8"), (60, "12.5"), (60, "6% more"), (80, "61%")):
        assert (cell in row) or width < least, cell
    assert ("1,234" in row) == (width > 80), "GPU-hours are left out first"
    assert "▲ waits longer for its first start" in lines


def test_what_there_is_no_room_for_is_named_as_it_is_written() -> None:
    table = owner_table_on_terminal("", TextTable(("User", *["GPU-hours asked for"] * 9), ()))
    assert table.headings[1] == "GPU-hours asked for"

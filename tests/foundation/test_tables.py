"""Tables at every width: whole columns, whole figures, words that go on between two words."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from foundation.tables import SHORTEST_NAME, Column, FactSheet, FittedTable, in_words

DIGEST = "0123456789abcdef" * 4


def lines_of(table: FittedTable | FactSheet, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(table)
    return out.getvalue().splitlines()


def jobs_table(said: str = "") -> FittedTable:
    columns = (
        Column("cluster"),
        Column("jobs", 1),
        Column("avg JCT\n[h]"),
        Column("state", 2, text=True),
        Column("why", words=True),
    )
    return FittedTable("all", columns, [("north", "12/1300", "103.48", "away", said), ("east", "3/4", "1.25", "", "")])


def test_figures_end_at_the_right_names_and_texts_begin_at_the_left() -> None:
    assert lines_of(jobs_table(), 60) == [
        "all",
        "                  avg JCT",
        "cluster     jobs      [h]  state",
        "────────────────────────────────",
        "north    12/1300   103.48  away",
        "east         3/4     1.25",
    ]


def test_columns_are_left_out_in_the_order_that_they_say_and_named_below() -> None:
    assert lines_of(jobs_table(), 28)[1:] == [
        "                  avg JCT",
        "cluster     jobs      [h]",
        "─────────────────────────",
        "north    12/1300   103.48",
        "east         3/4     1.25",
        "no room for: state",
    ]
    assert lines_of(jobs_table(), 20)[4:] == ["north     103.48", "east        1.25", "no room for: jobs,", "state"]


def test_words_stand_beside_the_figures_where_there_is_room_and_else_below_their_row() -> None:
    said = "the verdict was +1.25% after 1234 pairs, which is more than 1.00%"
    beside = lines_of(jobs_table(said), 70)
    assert beside[4:7] == [
        "north    12/1300   103.48  away   the verdict was +1.25% after 1234",
        "                                  pairs, which is more than 1.00%",
        "east         3/4     1.25",
    ]
    assert beside[2].endswith("state  why")
    below = lines_of(jobs_table(said), 40)
    assert below[4:7] == [
        "north    12/1300   103.48  away",
        "  the verdict was +1.25% after 1234",
        "  pairs, which is more than 1.00%",
    ]
    assert "why" not in " ".join(below)


def test_a_long_name_keeps_its_end_and_is_whole_where_it_fits() -> None:
    name = "gpu-cluster-of-the-northern-hall-7"
    table = FittedTable("", (Column("cluster"), Column("step")), [(name, "1234567")])
    assert lines_of(table, 60)[2] == f"{name}  1234567"
    assert lines_of(table, 40)[2] == f"…{name[-23:]}  1234567"
    assert lines_of(table, 20)[2] == f"…{name[-10:]}  1234567"


def test_nothing_in_a_cell_is_obeyed() -> None:
    table = FittedTable("[red]t", (Column("n [h]"), Column("x")), [("[bold]a\x1b[2J", "\n1")], ["[b] 1 [/]"])
    assert lines_of(table, 40)[0] == "[red]t"
    assert lines_of(table, 40)[-2:] == [r"[bold]a\x1b[2J  1", "[b] 1 [/]"]
    sheet = FactSheet("", [("[red]file", "[bold].csv\x1b[2J")])
    assert lines_of(sheet, 40) == [r"[red]file  [bold].csv\x1b[2J"]


def test_a_fact_stands_beside_its_label_and_a_long_word_below_it_whole() -> None:
    sheet = FactSheet("v3", [("digest", DIGEST), ("made of", "north 3, south 2, the east 1")], ["  done: 1 2 3"])
    assert lines_of(sheet, 80) == ["v3", f"digest   {DIGEST}", "made of  north 3, south 2, the east 1", "  done: 1 2 3"]
    assert lines_of(sheet, 70)[1:3] == ["digest", f"  {DIGEST}"]
    narrow = lines_of(sheet, 26)
    assert "".join(line[9:] for line in narrow[1:5]) == DIGEST
    assert narrow[-3:] == ["made of  north 3, south 2,", "         the east 1", "  done: 1 2 3"]


def test_values_are_told_in_words() -> None:
    value = {"learning_rate": 0.06, "pairs": 16, "on": True, "types": ["a", "b"], "of": {}, "why": None}
    assert in_words(value) == "learning rate 0.06; pairs 16; on yes; types a, b; of none; why –"
    assert in_words(1_790_000_000.5) == "1790000000.5"


@given(
    st.lists(st.tuples(st.text("abc[]0.9", min_size=1, max_size=12), st.integers(0, 9)), min_size=3, max_size=8),
    st.integers(30, 140),
)
@example([("bbbbbbbbbbba", 0), ("0000000", 0), ("00000000", 0)], 30)
def test_no_cell_is_ever_split_or_shortened_but_a_name(drawn: list[tuple[str, int]], width: int) -> None:
    columns = [Column(f"h{index}", left_out) for index, (_, left_out) in enumerate(drawn)]
    row = [text for text, _ in drawn]
    lines = lines_of(FittedTable("", columns, [row]), width)
    assert all(len(line) <= width for line in lines)
    heading, _, cells, *_ = lines
    shown = [int(word[1:]) for word in heading.split()]
    assert shown[:1] == [0]
    assert len(shown) >= 2
    name, *others = cells.split()
    assert others == [row[index] for index in shown[1:]]
    assert name == row[0] or (name[0] == "…" and len(name) >= SHORTEST_NAME and row[0].endswith(name[1:]))


@pytest.mark.parametrize("width", [1, 5, 12])
def test_a_terminal_of_hardly_any_width_is_not_overrun(width: int) -> None:
    for table in (jobs_table("because"), FactSheet("t", [("label", "value 12")], ["below"])):
        assert all(len(line) <= width for line in lines_of(table, width))

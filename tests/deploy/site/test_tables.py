"""Tables of the site on a phone: which are stacked, and what each cell is told for it."""

from __future__ import annotations

import re

import pytest

from deploy.site.tables import with_headings


def table(*rows: tuple[str, ...]) -> str:
    """As the generator writes one."""
    head, *body = (
        "<tr>\n" + "".join(f"<{tag}>{text}</{tag}>\n" for text in row) + "</tr>"
        for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True)
    )
    return f"<table>\n<thead>\n{head}\n</thead>\n<tbody>\n{''.join(body)}\n</tbody>\n</table>"


def names(page: str) -> list[str]:
    return re.findall(r'data-name="([^"]*)"', page)


SIX = ("policy", "a", "b", "c", "d", "e")


def test_a_table_that_a_phone_has_room_for_stays_as_it_is() -> None:
    for few in (table(("name", "meaning"), ("x" * 60, "y" * 60)), table(SIX[:5], ("fifo", "1", "2", "3", "4"))):
        assert with_headings(f"<p>a</p>{few}<p>b</p>") == f"<p>a</p>{few}<p>b</p>"


@pytest.mark.parametrize(
    "wide",
    [
        table(SIX, ("fifo", "1", "2", "3", "4", "5")),
        table(("policy", "utilisation", "completion", "preemptions", "d"), ("fifo", "1", "2", "3", "4")),
    ],
)
def test_in_a_wider_one_every_figure_has_its_heading(wide: str) -> None:
    stacked = with_headings(wide)
    headings = re.findall(r"<th>(.*?)</th>", wide)
    assert names(stacked) == headings[1:], "the row's name says what it is"
    assert re.sub(r" data-[a-z]+(=\"[^\"]*\")?", "", stacked) == wide, "nothing else is changed"


def test_a_row_that_is_named_by_a_number_says_of_what() -> None:
    assert names(with_headings(table(SIX, ("16", "1", "2", "3", "4", "5"))))[0] == "policy"


def test_a_sentence_has_a_line_of_its_own_in_each_row() -> None:
    rows = ("fifo", "1", "2", "3", "4", "why it is so, in many words"), ("drf", "1", "2", "3", "4", "as above")
    stacked = with_headings(table(SIX, *rows))
    assert re.findall(r"data-long>(.*?)<", stacked) == [row[-1] for row in rows]
    assert 'data-stacks="2"' in stacked, "the four others are two and two"
    assert 'data-stacks="3"' in with_headings(table(SIX, ("fifo", "1", "2", "3", "4", "5")))


def test_words_in_a_heading_are_text_whatever_they_hold() -> None:
    wide = table(("policy", '<code>a</code> &amp; <a href="x">b</a>', 'the "c"', "", "d", "e"), ("fifo", *"12345"))
    assert names(with_headings(wide)) == ["a &amp; b", "the &quot;c&quot;", "d", "e"]


@pytest.mark.parametrize("odd", ["<table></table>", "<table><tr></tr></table>", table(SIX, ("fifo", "1")), table(SIX)])
def test_what_is_no_whole_table_is_no_error(odd: str) -> None:
    assert names(with_headings(odd)) == []

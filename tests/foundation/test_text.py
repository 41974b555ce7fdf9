import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.text import nearest, parse_json, plain_line, with_checksum, without_checksum


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_a_plain_line_is_one_printable_line_of_bounded_length(text: str, longest: int) -> None:
    line = plain_line(text, longest)
    assert len(line) <= longest
    assert line.isprintable()


def test_what_a_terminal_would_obey_stands_as_its_escape() -> None:
    assert plain_line("a\x1b[2Jb\n\tc") == "a\\x1b[2Jb c"


def test_a_cut_text_says_so() -> None:
    assert plain_line("x" * 5, 4) == "xxx…"
    assert plain_line("x" * 4, 4) == "xxxx"
    assert plain_line(" " * 100 + "x", 4) == "…"  # nobody looks so far


def test_json_is_read_and_its_faults_are_value_errors() -> None:
    assert parse_json('{"a": [1]}') == {"a": [1]}
    assert parse_json(b"2.5") == 2.5
    for broken in ("{", b"\xff", "[" * 100_000):
        with pytest.raises(ValueError):  # noqa: PT011  (the sentence is Python's)
            parse_json(broken)
    assert issubclass(json.JSONDecodeError, ValueError)


def test_a_misspelt_word_finds_the_one_that_was_meant() -> None:
    assert nearest("resise", ["resize", "resume", "status"]) == "resize"
    assert nearest("xyz", ["resize", "resume"]) is None
    assert nearest("resume", []) is None
    assert nearest("reset", ["resize"], least_likeness=0.9) is None


@given(st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.integers())))
def test_a_checksum_goes_with_an_object_through_a_file_and_an_older_one_has_none(content: dict[str, object]) -> None:
    content.pop("checksum", None)
    assert without_checksum(json.loads(json.dumps(with_checksum(content), indent=1))) == content
    assert without_checksum(content) == content


def test_a_number_that_was_changed_is_damage() -> None:
    written = json.dumps(with_checksum({"workers": 2, "args": ["0.05"]}))
    for damaged in (written.replace("2,", "3,"), written.replace("0.05", "0.85"), written.replace("args", "argz")):
        with pytest.raises(ValueError, match="its checksum is another"):
            without_checksum(json.loads(damaged))

"""The reference pages say what the programs are, no more and no less."""

from pathlib import Path

import pytest

from deploy.reference.__main__ import PAGES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_what_the_programs_say_now(page: str) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == PAGES[page](), f"{page} is old: run `make reference`"


def test_every_setting_and_every_option_has_a_meaning() -> None:
    for page in ("docs/guide/settings.md", "docs/guide/commands.md", "docs/guide/metrics.md", "docs/guide/refusals.md"):
        empty = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.endswith("|  |")]
        assert not empty, f"{page}: without a meaning: {empty}"

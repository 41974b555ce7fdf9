"""Words for versions mean the same to who types them and to the learner."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.errors import BadRequest
from global_learner.registry.version_words import check_alias, version_of

WORDS = st.text("v19a.-Vé \n", max_size=6) | st.sampled_from(["latest", "newest", "head", "all", "a" * 63, "a" * 64])


@given(WORDS)
def test_what_the_learner_lets_be_an_alias_can_be_asked_for_by_it(word: str) -> None:
    try:
        check_alias(word)
    except BadRequest as refused:
        known = "means something else already" in str(refused)
        assert version_of(word) != word or known, "a word such as `latest` is asked for, and is no alias"
    else:
        assert version_of(word) == word


@pytest.mark.parametrize("number", ["3", "v3", "v003"])
def test_a_number_is_no_alias(number: str) -> None:
    assert version_of(number) == 3
    with pytest.raises(BadRequest):
        check_alias(number)


def test_who_only_types_them_loads_no_database() -> None:
    code = "import sys, global_learner.registry.version_words; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "False\n"

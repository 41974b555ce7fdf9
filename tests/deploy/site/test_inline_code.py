"""Short inline code is marked, so that the style can keep it on one line; long code stays breakable."""

import pytest

from deploy.site.inline_code import with_whole_code


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("--watch", True),
        ("-o csv", True),
        ("&lt;a-b&gt;" + "c" * 19, True),
        ("&lt;a-b&gt;" + "c" * 20, False),
        ("watch", False),
        ("policy-net reproduce dl2 --quick", False),
    ],
)
def test_short_code_that_would_be_broken_is_marked(text: str, short: bool) -> None:
    page = f"<p>Give <code>{text}</code>.</p>"
    assert with_whole_code(page) == (page.replace("<code>", "<code data-short>") if short else page)


def test_code_in_colours_stays_as_it_is() -> None:
    page = '<pre><code><span class="nb">a</span> -b</code></pre>'
    assert with_whole_code(page) == page

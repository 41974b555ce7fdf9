"""What GitHub reads as a list, a link or a diagram is one in the site too."""

from __future__ import annotations

import markdown

from deploy.site.markdown import links, with_diagrams, with_links, with_plain_lists

PAGE = """# A page

See [one](one.md#part), `[no](link.md)`, and [`code`](two.md).
![picture](three.png)

```sh
echo [neither](this.md)
```
"""


def html(text: str) -> str:
    return markdown.markdown(with_plain_lists(text), extensions=["sane_lists", "pymdownx.superfences", "tables"])


def test_links_and_pictures_are_found_and_those_in_code_are_not() -> None:
    assert list(links(PAGE)) == ["one.md#part", "two.md", "three.png"]


def test_only_targets_of_links_are_changed() -> None:
    changed = with_links(PAGE, lambda target: f"there/{target}")
    assert changed.replace("there/", "") == PAGE
    assert list(links(changed)) == ["there/one.md#part", "there/two.md", "there/three.png"]


def test_a_list_below_a_line_of_text_is_a_list() -> None:
    assert html("Two:\n- one\n- two\n\nAfter.").count("<li>") == 2
    assert "<p>After.</p>" in html("Two:\n- one\n- two\n\nAfter.")


def test_a_line_of_code_that_looks_like_a_list_stays() -> None:
    text = "```yaml\nstages:\n- kind: gate\n```\n"
    assert with_plain_lists(text) == text


def test_what_belongs_to_a_numbered_item_stays_in_it() -> None:
    page = html("1. First.\n\n   ```sh\n   ls\n     -l\n   ```\n\n2. Second\n   goes on.\n\n   And on.\n\nAfter.")
    assert page.count("<ol>") == 1
    assert page.count("<li>") == 2
    assert page.index("<code") < page.index("Second") < page.index("And on.") < page.index("</ol>")
    assert page.endswith("<p>After.</p>")


def test_a_table_in_an_item_stays_in_it() -> None:
    page = html("- Figures:\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n- Next.")
    assert page.index("<table>") < page.index("Next.") < page.index("</ul>")


def test_a_diagram_is_replaced_and_other_code_is_not() -> None:
    text = "## Flow\n\n```mermaid\nflowchart LR\n  a --> b\n```\n\n```sh\nls\n```\n"
    assert with_diagrams(text, lambda source, heading: f"[{heading}: {source!r}]") == (
        "## Flow\n\n[Flow: 'flowchart LR\\n  a --> b']\n\n```sh\nls\n```\n"
    )

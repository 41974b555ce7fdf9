from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from policy_net.errors import BadInput
from policy_net.settings import read_settings_file


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int = 1


class Example(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int
    inner: Inner = Inner()


def read(folder: Path, text: str | bytes) -> Example:
    path = folder / "example.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_settings_file(path, Example, "size")


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "size: 3\ninner: {depth: 2}\n") == Example(size=3, inner=Inner(depth=2))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("size: 3\nsizes: 4\n", "unknown setting sizes"),
        ("size: 3\nsize: 4\n", "line 2: no valid YAML (size is given twice)"),
        ("size: 3\ninner:\n  depth: 1\n  depth: 2\n", "line 4: no valid YAML (depth is given twice)"),
        ("size: large\n", "setting size = 'large': use a whole number, such as 10"),
        ("sise: 3\n", "unknown setting sise; did you mean size?"),
        ("size: 3\nint: 5\n", "unknown setting int"),
        ("size: 3\ninner: {'b[0]': 1}\n", "unknown setting inner.b[0]"),
        (
            "size: 3\nwidth: 1\ninner: {depths: 1}\n",
            "unknown setting inner.depths; did you mean depth? Also unknown setting width",
        ),
        ("size: two\nwidth: 1\n", "unknown setting width; also setting size = 'two': use a whole number"),
        ("{a: 1, b: 1, c: 1, d: 1, size: 1}\n", "unknown setting c (and 1 more)"),
        ("inner: {}\n", "setting size is missing"),
        ("", "holds no settings; it needs at least size"),
        ("- 1\n", "holds no settings"),
        ("size: [1\n", "no valid YAML"),
        (b"\xff\xfe\x00", "no UTF-8 text"),
    ],
)
def test_every_fault_is_one_line_with_the_files_name(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text)
    assert says in str(caught.value)
    assert "example.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_setting_is_not_missing_too(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, "sise: 3\n")
    assert str(caught.value).endswith("unknown setting sise; did you mean size?")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.yaml: cannot be read"):
        read_settings_file(tmp_path / "nowhere.yaml", Example, "size")

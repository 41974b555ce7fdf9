from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from policy_net.errors import BadInput
from policy_net.settings import Address, ClusterName, Constant, Section, checked_settings, read_settings_file


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int = 1


class Example(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int
    inner: Inner = Inner()


class Way(StrEnum):
    NEAR = "near"
    FAR = "far"


class Chosen(Section):
    initial: str | None = None
    exploration: float = Field(0.0, ge=0.0, le=1.0)
    way: Way = Way.NEAR


class Watch(Section):
    deadline_ms: float = 2000.0
    enabled: bool = True


class Called(Section):
    address: Address
    others: tuple[Address, ...] = ()


class Files(Section):
    certificate_file: Path
    key_file: Path


class Simulated(Section):
    kind: Literal["simulated"]
    nodes: int = 8


class Real(Section):
    kind: Literal["real"]
    nodes: int = 4


class Whole(Section):
    """As a program's: settings of every type that there is."""

    cluster: ClusterName = "north"
    host: str = "127.0.0.1"
    note: str | None = None
    state_dir: Path = Path("/var/lib/fedl2")
    chosen: Chosen = Chosen()
    watch: Watch = Watch()
    called: Called | None = None
    files: Files | None = None
    backend: Annotated[Simulated | Real, Field(discriminator="kind")] = Simulated(kind="simulated")
    history: tuple[str, ...] = ()
    several: tuple[Called, ...] = Field((), max_length=2)
    env: dict[str, int] = Field(default_factory=dict)


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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"chosen": "set"}, "setting chosen = 'set': is a section; write chosen: {initial: set}"),
        ({"chosen": "far"}, "is a section; write chosen: {initial: far}"),
        ({"chosen": [1]}, "setting chosen = [1]: is a section; write chosen: {initial: …}"),
        ({"watch": 500}, "setting watch = 500: is a section; write watch: {deadline_ms: 500}"),
        ({"watch": False}, "setting watch = false: is a section; write watch: {enabled: false}"),
        ({"watch": None}, "setting watch = nothing: is a section; write watch: {deadline_ms: 2000}"),
        ({"called": "10.0.0.1:7070"}, "is a section; write called: {address: 10.0.0.1:7070}"),
        ({"called": {"address": 7070}}, "setting called.address = 7070: write HOST:PORT, such as 127.0.0.1:7070"),
        ({"called": {"address": "a:1", "others": [7070]}}, "setting called.others.0 = 7070: write HOST:PORT, such as"),
        ({"called": {}}, "setting called.address is missing"),
        ({"files": "a.pem"}, "is a section; write files: {certificate_file: a.pem, key_file: …}"),
        ({"backend": "real"}, "setting backend = 'real': is a section; write backend: {kind: real}"),
        ({"backend": "other"}, "setting backend = 'other': is a section; write backend: {kind: simulated}"),
        ({"backend": {"nodes": 3}}, "setting backend.kind is missing: use one of 'simulated', 'real'"),
        ({"backend": {"kind": "own"}}, "setting backend.kind = 'own': use one of 'simulated', 'real'"),
        ({"backend": {"kind": "real", "nodes": "x"}}, "setting backend.nodes = 'x': use a whole number, such as"),
        ({"history": "a.csv"}, "setting history = 'a.csv': is a list; write history: [a.csv]"),
        ({"several": "a:1"}, "setting several = 'a:1': is a list; write several: [{address: a:1}]"),
        ({"several": ["a:1"]}, "setting several.0 = 'a:1': is a section; write {address: a:1}"),
        ({"several": [{"address": "a:1"}] * 3}, "must have at most 2 items, not 3"),
        ({"env": 3}, "setting env = 3: is a section; write env: {NAME: VALUE}"),
        ({"host": 7}, "setting host = 7: use text, such as 127.0.0.1"),
        ({"note": 7}, 'setting note = 7: use text, in quotes where it is a number: "7"'),
        ({"cluster": 7}, "setting cluster = 7: use lower case letters, digits, - and ."),
        ({"cluster": "North"}, "setting cluster = 'North': use lower case letters, digits, - and ."),
        ({"state_dir": 7}, "setting state_dir = 7: use the path of a file or folder, such as /var/lib/fedl2"),
        ({"chosen": {"exploration": 2}}, "setting chosen.exploration = 2: must be less than or equal to 1"),
        ({"chosen": {"exploration": "much"}}, "setting chosen.exploration = 'much': use a number, such as 0"),
        ({"chosen": {"exploration": float("nan")}}, "setting chosen.exploration = nan: must be a finite number"),
        ({"chosen": {"way": "off"}}, "setting chosen.way = 'off': must be 'near' or 'far'"),
        ({"watch": {"enabled": "maybe"}}, "setting watch.enabled = 'maybe': use true or false"),
    ],
)
def test_a_value_of_another_type_is_met_with_what_to_write(content: object, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        checked_settings(content, Whole, "config.yaml")
    assert says in str(caught.value)
    assert not any(words in str(caught.value) for words in ("Input", "should", "dictionary", "instance"))


def test_what_is_advised_for_a_value_in_a_sections_place_is_taken() -> None:
    reported = checked_settings({"chosen": {"initial": "set"}, "watch": {"enabled": False}}, Whole, "config.yaml")
    assert (reported.chosen.initial, reported.watch.enabled) == ("set", False)


class Limits(Section):
    burst: Constant[int] = 20
    deadline_seconds: Constant[float | None] = None
    rate: float = 1.0


class Limited(Section):
    limits: Limits = Limits()
    each: tuple[Limits, ...] = ()
    grace_seconds: Constant[float] = 5.0
    twin: Constant[Limits] = Limits()


def test_what_became_a_constant_is_named_once_and_counts_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        "grace_seconds: 'of another type'\nlimits: {burst: 1, rate: 2}\n"
        "each: [{deadline_seconds: 3}]\ntwin: {burst: 7}\n"
    )
    found = read_settings_file(path, Limited, "limits")
    assert found == Limited(limits=Limits(rate=2.0), each=(Limits(),))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"{path}: no settings any more, take them out before the next release, which refuses them: limits.burst (it is"
        " 20), each.deadline_seconds (it is not set), grace_seconds (it is 5), twin.burst (it is 20)"
    )


@pytest.mark.parametrize(("text", "says"), [("{no_such: 1}", "unknown setting twin.no_such"), ("7", "is a section")])
def test_a_slip_in_a_section_that_became_a_constant_is_refused_as_ever(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(f"limits: {{rate: 2}}\ntwin: {text}\n")
    with pytest.raises(BadInput, match=says):
        read_settings_file(path, Limited, "limits")


def test_constants_are_neither_demanded_nor_offered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "new.yaml"
    path.write_text("limits: {rate: 2}\n")
    read_settings_file(path, Limited, "limits")
    assert not caplog.records
    path.write_text("limits: {bursts: 1}\n")
    with pytest.raises(BadInput, match=r"unknown setting limits.bursts$"):
        read_settings_file(path, Limited, "limits")


def test_code_may_still_give_another_value() -> None:
    assert Limits(burst=3).burst == 3


class Paced(Section):
    kind: Literal["paced"] = "paced"
    backlog: Constant[int] = 2


class Unpaced(Section):
    kind: Literal["unpaced"] = "unpaced"
    backlog: int = 0


class Run(Section):
    pace: Paced | Unpaced = Paced()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pace: {backlog: 5}", Paced()),
        ("pace: {kind: paced, backlog: 5}", Paced()),
        ("pace: {kind: unpaced, backlog: 5}", Unpaced(backlog=5)),
    ],
)
def test_a_constant_of_one_kind_of_section_may_be_another_kinds_setting(
    text: str, found: Section, tmp_path: Path
) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(text)
    assert read_settings_file(path, Run, "pace").pace == found

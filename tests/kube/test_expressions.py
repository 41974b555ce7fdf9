"""Expressions of CEL that the test server knows."""

import contextlib
from typing import Any

import pytest
from apiserver.writing.expressions import CelError, parsed
from hypothesis import given
from hypothesis import strategies as st

SELF: dict[str, Any] = {"a": 1, "b": "text", "list": [1, 2, 3], "map": {"x": {"y": 2}}, "none": None, "in": 5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("self.a == 1 && self.b != 'x'", True),
        ('self.a > 1 || self.b.startsWith("te")', True),
        ("!has(self.c)", True),
        ("has(self.map.x) && has(self.map.x.y)", True),
        ("has(self.map.z.y)", CelError),
        ("has(self.c) && self.c > 1", False),
        ("self.c > 1 || true", True),
        ("false && self.c > 1", False),
        ("size(self.list) == 3 && self.b.size() == 4", True),
        ("2 in self.list && 'x' in self.map && !(9 in self.list)", True),
        ("self.a == 1 ? 'one' : 'other'", "one"),
        ("self.list.all(each, each > 0)", True),
        ("self.list.exists(each, each > 2)", True),
        ("self.list.exists_one(each, each > 1)", False),
        ("self.list.map(each, each * 2)", [2, 4, 6]),
        ("self.list.filter(each, each % 2 == 1)", [1, 3]),
        ("self.map.all(key, self.map[key].y == 2)", True),
        ("self.list[0] + 2 * 3 - 1", 6),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("self.__in__ == 5", True),
        ("self.none == null", True),
        ("1 == 1.0", True),
        ("true == 1", False),
        ("self.b.matches('^t.x')", True),
        ("[1, 2] + [3] == self.list", True),
        ("{'a': 1}['a'] == 1", True),
        ('string(self.a) + "\\"x"', '1"x'),
        ("(1 + 2) * 3", 9),
        ("self.c", CelError),
        ("self.a && true", CelError),
        ("self.a < 'x'", CelError),
        ("self.a + 'x'", CelError),
        ("other", CelError),
        ("1 / 0", CelError),
    ],
)
def test_values(text: str, value: Any) -> None:
    if value is CelError:
        with pytest.raises(CelError):
            parsed(text)({"self": SELF})
    else:
        assert parsed(text)({"self": SELF}) == value


@pytest.mark.parametrize("text", ["", "self.", "1 +", "(1", "a b", "self.a ==", "nothing(1)", "#", "has(1)", "[1, 2"])
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(CelError):
        parsed(text)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-50, 50))
def test_operators_bind_as_in_python(a: int, b: int, c: int) -> None:
    scope = {"a": a, "b": b, "c": c}
    assert parsed("a + b * c")(scope) == a + b * c
    assert parsed("a - b - c < a && !(b == c)")(scope) == (a - b - c < a and b != c)
    assert parsed("a < b ? b : a")(scope) == max(a, b)


@given(st.text(max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(CelError):
        assert callable(parsed(text))

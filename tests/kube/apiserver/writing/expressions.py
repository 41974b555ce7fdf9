"""Expressions of CEL, as far as `x-kubernetes-validations` of ours go: parsed into a tree of Python functions.

Literals, lists and maps; `||`, `&&` (which forgive an error on one side if the other decides), `!`, `?:`, comparisons,
arithmetic, `in`; fields and indices; `has()`, `size()`, conversions, functions of strings, and the macros `all`,
`exists`, `exists_one`, `map`, `filter`. Not there: durations, times, quantities, optional values.

Source: the language definition of the Common Expression Language.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Scope = dict[str, Any]
Node = Callable[[Scope], Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+u?)"
    r"|(?P<string>r?\"(?:\\.|[^\"\\])*\"|r?'(?:\\.|[^'\\])*')"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<mark>&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]{}]))"
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class CelError(Exception):
    """An expression cannot be parsed, or not be evaluated on this object."""


def parsed(text: str) -> Node:
    """An expression as a function of its variables.

    Raises:
        CelError: it is none; the function raises it where an object lacks what the expression reads.
    """
    parser = _Parser(text)
    found = parser.ternary()
    parser.end()
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at, whole = 0, text.rstrip()
        while at < len(whole):
            found = _TOKEN.match(whole, at)
            if found is None:
                raise CelError(f"syntax error at column {at} of {text}")
            at = found.end()
            kind = str(found.lastgroup)
            self._tokens.append((kind, found[kind]))
        self._at = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise CelError(f"syntax error at {self._tokens[self._at][1]} in {self._text}")

    def ternary(self) -> Node:
        condition = self._or()
        if not self._take("?"):
            return condition
        yes = self._or()
        self._need(":")
        no = self.ternary()
        return lambda scope: yes(scope) if _bool(condition(scope)) else no(scope)

    def _or(self) -> Node:
        left = self._and()
        while self._take("||"):
            left = _either(left, self._and(), decides=True)
        return left

    def _and(self) -> Node:
        left = self._relation()
        while self._take("&&"):
            left = _either(left, self._relation(), decides=False)
        return left

    def _relation(self) -> Node:
        left = self._sum()
        while True:
            for mark in ("==", "!=", "<=", ">=", "<", ">"):
                if self._take(mark):
                    left = _binary(mark, left, self._sum())
                    break
            else:
                if self._peek() != ("name", "in"):
                    return left
                self._at += 1
                left = _binary("in", left, self._sum())

    def _sum(self) -> Node:
        left = self._product()
        while mark := self._take("+") or self._take("-"):
            left = _binary(mark, left, self._product())
        return left

    def _product(self) -> Node:
        left = self._unary()
        while mark := self._take("*") or self._take("/") or self._take("%"):
            left = _binary(mark, left, self._unary())
        return left

    def _unary(self) -> Node:
        if self._take("!"):
            inner = self._unary()
            return lambda scope: not _bool(inner(scope))
        if self._take("-"):
            inner = self._unary()
            return lambda scope: -inner(scope)
        return self._member()

    def _member(self) -> Node:
        found = self._primary()
        while True:
            if self._take("."):
                name = self._name()
                found = self._call(name, found) if self._take("(") else _field(found, name)
            elif self._take("["):
                found = _index(found, self.ternary())
                self._need("]")
            else:
                return found

    def _primary(self) -> Node:
        if self._take("("):
            found = self.ternary()
            self._need(")")
            return found
        if self._take("["):
            items = self._words("]")
            return lambda scope: [each(scope) for each in items]
        if self._take("{"):
            return self._map()
        return self._word(*self._next())

    def _word(self, kind: str, text: str) -> Node:
        if kind == "number":
            number = float(text) if any(mark in text for mark in ".eE") else int(text.rstrip("u"))
            return lambda scope: number
        if kind == "string":
            string = _unquoted(text)
            return lambda scope: string
        if kind != "name":
            raise CelError(f"syntax error at {text} in {self._text}")
        if text in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[text]
            return lambda scope: constant
        if self._take("("):
            return self._has() if text == "has" else self._call(text, None)
        return lambda scope: _variable(scope, text)

    def _map(self) -> Node:
        pairs = []
        while not self._take("}"):
            key = self.ternary()
            self._need(":")
            pairs.append((key, self.ternary()))
            self._take(",")
        return lambda scope: {key(scope): value(scope) for key, value in pairs}

    def _has(self) -> Node:
        inner = self._member()
        self._need(")")
        field = getattr(inner, "field", None)
        if field is None:
            raise CelError(f"has() takes a field in {self._text}")
        holder, name = field

        def there(scope: Scope) -> bool:
            value = holder(scope)
            return isinstance(value, dict) and name in value

        return there

    def _call(self, name: str, on: Node | None) -> Node:
        if name in _MACROS and on is not None:
            variable = self._name()
            self._need(",")
            body = self.ternary()
            more = self.ternary() if self._take(",") else None
            self._need(")")
            return _macro(name, on, variable, body, more)
        words = self._words(")")
        if on is not None:
            words = [on, *words]
        if name not in _FUNCTIONS:
            raise CelError(f"undeclared reference to '{name}' in {self._text}")
        do = _FUNCTIONS[name]
        return lambda scope: _carried_out(do, name, [each(scope) for each in words])

    def _words(self, end: str) -> list[Node]:
        found: list[Node] = []
        while not self._take(end):
            found.append(self.ternary())
            if not self._take(","):
                self._need(end)
                break
        return found

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "the end")

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        self._at += 1
        return found

    def _take(self, mark: str) -> str:
        if self._peek() != ("mark", mark):
            return ""
        self._at += 1
        return mark

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            raise CelError(f"syntax error: {mark} expected at {self._peek()[1]} in {self._text}")

    def _name(self) -> str:
        kind, text = self._next()
        if kind != "name":
            raise CelError(f"syntax error at {text} in {self._text}")
        return text


def _variable(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise CelError(f"undeclared reference to '{name}'")
    return scope[name]


def _field(holder: Node, name: str) -> Node:
    # Names that CEL keeps for itself are written with underscores.
    plain = name[2:-2] if name.startswith("__") and name.endswith("__") else name

    def value(scope: Scope) -> Any:
        found = holder(scope)
        if not isinstance(found, dict) or plain not in found:
            raise CelError(f"no such key: {plain}")
        return found[plain]

    value.field = (holder, plain)  # type: ignore[attr-defined]  # for has()
    return value


def _index(holder: Node, at: Node) -> Node:
    def value(scope: Scope) -> Any:
        found, key = holder(scope), at(scope)
        try:
            return found[key]
        except (KeyError, IndexError, TypeError) as error:
            raise CelError(f"no such key: {key}") from error

    return value


def _either(left: Node, right: Node, *, decides: bool) -> Node:
    """A side with the value that decides wins, also over an error on the other."""

    def value(scope: Scope) -> bool:
        try:
            first = _bool(left(scope))
        except CelError:
            if _bool(right(scope)) is decides:
                return decides
            raise
        return decides if first is decides else _bool(right(scope))

    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError("no such overload: a condition is no bool")
    return value


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    return bool(left == right)


def _binary(mark: str, left: Node, right: Node) -> Node:
    do = _OPERATIONS[mark]
    return lambda scope: _carried_out(do, mark, [left(scope), right(scope)])


def _carried_out(do: Callable[..., Any], name: str, values: list[Any]) -> Any:
    try:
        return do(*values)
    except (TypeError, ValueError, AttributeError, ZeroDivisionError, re.error) as error:
        raise CelError(f"no such overload: {name}: {error}") from error


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def value(left: Any, right: Any) -> bool:
        if not (_number(left) and _number(right)) and not (isinstance(left, str) and isinstance(right, str)):
            raise TypeError("values cannot be compared")
        return compare(left, right)

    return value


def _quotient(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return left / right


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "in": lambda left, right: any(_equal(left, each) for each in right),
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _quotient,
    "%": lambda left, right: left - right * _quotient(left, right),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": len,
    "int": int,
    "double": float,
    "string": lambda value: str(value).lower() if isinstance(value, bool) else str(value),
    "startsWith": lambda text, start: text.startswith(start),
    "endsWith": lambda text, end: text.endswith(end),
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "split": lambda text, by: text.split(by),
    "join": lambda parts, by="": by.join(parts),
    "type": lambda value: type(value).__name__,
}
_MACROS = ("all", "exists", "exists_one", "map", "filter")


def _macro(name: str, on: Node, variable: str, body: Node, more: Node | None) -> Node:
    def each(scope: Scope) -> list[tuple[Any, Scope]]:
        return [(item, {**scope, variable: item}) for item in on(scope)]

    def value(scope: Scope) -> Any:
        inner = each(scope)
        if name == "map":
            if more is not None:
                return [more(of) for _, of in inner if _bool(body(of))]
            return [body(of) for _, of in inner]
        if name == "filter":
            return [item for item, of in inner if _bool(body(of))]
        if name == "exists_one":
            return sum(_bool(body(of)) for _, of in inner) == 1
        decides, error = name == "exists", None
        for _, of in inner:
            try:
                if _bool(body(of)) is decides:
                    return decides
            except CelError as found:
                error = found
        if error is not None:
            raise error
        return not decides

    return value


def _unquoted(text: str) -> str:
    if text.startswith("r"):
        return text[2:-1]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])

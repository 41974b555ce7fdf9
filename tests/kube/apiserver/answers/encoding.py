"""Objects as JSON text, kept for as long as they stay the same: long lists are asked for again and again."""

from __future__ import annotations

import json
from typing import Any

from apiserver.store import Change, Key, Store, key_of

Json = dict[str, Any]


class Encoded:
    """Texts of the objects of a store."""

    def __init__(self, store: Store) -> None:
        self._texts: dict[tuple[str, Key], tuple[str, bytes]] = {}
        store.on_change.append(self._forget)

    def text_of(self, table: str, found: Json) -> bytes:
        """An object's text."""
        name, version = (table, key_of(found)), found["metadata"]["resourceVersion"]
        kept = self._texts.get(name)
        if kept is not None and kept[0] == version:
            return kept[1]
        text = json.dumps(found).encode()
        self._texts[name] = (version, text)
        return text

    def list_of(self, table: str, found: Json) -> bytes:
        """A list's text."""
        head = json.dumps({name: value for name, value in found.items() if name != "items"}).encode()
        return head[:-1] + b', "items": [' + b",".join(self.text_of(table, each) for each in found["items"]) + b"]}"

    def _forget(self, change: Change) -> None:
        self._texts.pop((change.plural, key_of(change.seen)), None)

"""Loopback addresses of a cluster's pods, nodes and Services: a block of its own, 127.B.0.0/16.

All of 127.0.0.0/8 is this machine: each pod listens on an address of its own, so that all may use the same port. A
block is held by a socket for as long as the cluster lives, so that clusters beside each other never share one.

There are no name servers and no forwarding: a Service has one address, and the pod that it selects, when it is the only
one that has not ended, gets that as its own. So who holds the Service's address reaches the pod that is made in
another's place. A Service that selects several pods has an address on which nobody listens.
"""

from __future__ import annotations

import socket
from typing import Any

from apiserver.controllers.stepping import has_ended, pair_of
from apiserver.store import Store

Json = dict[str, Any]
_HOLDING_PORT = 65000
_POD_ADDRESSES = 60_000


class NoBlockFree(Exception):
    """Every block of loopback addresses is held by another cluster."""


class Addresses:
    """Gives addresses out; to be closed.

    Raises:
        NoBlockFree: there are none left.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._block, self._holding = _hold_block()
        self._taken: dict[str, str] = {}  # by the pod's uid
        self._used: set[str] = set()
        self._services: dict[str, str] = {}  # by uid
        self._nodes: dict[str, str] = {}
        self._next = self._next_service = 0

    @property
    def block(self) -> int:
        """Its number, which no other cluster beside this one has."""
        return self._block

    def close(self) -> None:
        self._holding.close()

    def take(self, pod: Json) -> str:
        """An address for a pod: that of the Service which selects it alone, or one that no other has.

        Empty where the Service's address is still that of a pod on its way out: to be asked for again.
        """
        address = self._of_service_for(pod)
        if address in self._used:
            return ""
        while not address or address in self._used:
            number, self._next = self._next, (self._next + 1) % _POD_ADDRESSES
            address = f"127.{self._block}.{number // 250}.{1 + number % 250}"
        self._taken[pod["metadata"]["uid"]] = address
        self._used.add(address)
        return address

    def give_back(self, pod: Json) -> None:
        self._used.discard(self._taken.pop(pod["metadata"]["uid"], ""))

    def of_node(self, name: str) -> str:
        number = len(self._nodes)
        return self._nodes.setdefault(name, f"127.{self._block}.{245 + number // 250}.{1 + number % 250}")

    def of_service(self, service: Json) -> str:
        """A Service's: its clusterIP; a headless one, which has none, has one here all the same."""
        stated = (service.get("spec") or {}).get("clusterIP", "")
        if stated not in ("", "None"):
            return str(stated)
        uid = service["metadata"]["uid"]
        if uid not in self._services:
            self._services[uid] = self.for_service()
        return self._services[uid]

    def for_service(self) -> str:
        """A new address for a Service."""
        number, self._next_service = self._next_service, self._next_service + 1
        return f"127.{self._block}.{250 + number // 250}.{1 + number % 250}"

    def _of_service_for(self, pod: Json) -> str:
        namespace, _ = pair_of(pod)
        labels = pod["metadata"].get("labels") or {}
        for service in self._store.all("services", namespace):
            selector = (service.get("spec") or {}).get("selector") or {}
            if not selector or not selector.items() <= labels.items():
                continue
            selected = [
                pair_of(each)
                for each in self._store.all("pods", namespace)
                if not has_ended(each)
                and "deletionTimestamp" not in each["metadata"]
                and selector.items() <= (each["metadata"].get("labels") or {}).items()
            ]
            if selected == [pair_of(pod)]:
                return self.of_service(service)
        return ""


def _hold_block() -> tuple[int, socket.socket]:
    for block in range(1, 255):
        holding = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            holding.bind((f"127.{block}.255.254", _HOLDING_PORT))
        except OSError:
            holding.close()
            continue
        return block, holding
    raise NoBlockFree("127.1.0.0/16 to 127.254.0.0/16 are all held by clusters of other tests")

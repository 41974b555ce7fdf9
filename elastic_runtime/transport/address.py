"""Where an endpoint is reached; given to peers by the control plane as one line of JSON."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from elastic_runtime.transport.errors import BadAddress

_KEY = re.compile(r"(?:[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40})?")
"""Z85 of 32 bytes, or nothing."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Address:
    """All the ways to one endpoint; which one is taken is the caller's business."""

    tcp: str
    """For ZeroMQ, such as `tcp://10.0.0.7:41000`."""
    ipc: str
    """Abstract Unix socket for ZeroMQ; empty where there is none."""
    share: str
    """Abstract Unix socket on which regions are handed over; empty where there is none."""
    host: str
    """Boot identity of the host, only a hint: what counts is whether the sockets above answer."""
    public_key: str
    """CURVE key in Z85; empty without CURVE."""

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read what `text` wrote.

        Raises:
            BadAddress: it is something else.
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadAddress(f"not the address of a data endpoint: {text[:200]!r}") from error
        if (
            not isinstance(fields, dict)
            or set(fields) != set(cls.__slots__)
            or not all(isinstance(value, str) for value in fields.values())
            or not fields["tcp"].startswith("tcp://")
            or not _KEY.fullmatch(fields["public_key"])
        ):
            raise BadAddress(f"not the address of a data endpoint: {text[:200]!r}")
        return cls(**fields)


def host_identity() -> str:
    """Changes with every boot and differs between machines; empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""

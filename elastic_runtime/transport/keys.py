"""A member's own CURVE keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """A CURVE key pair, in Z85 (40 characters each)."""

    public: str
    secret: str = field(repr=False)

    @classmethod
    def generate(cls) -> CurveKeys:
        """A new pair, from the system's randomness."""
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())

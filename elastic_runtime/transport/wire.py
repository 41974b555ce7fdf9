"""Bytes of the data plane: what a hello, a message and an acknowledgement look like.

A message is one frame with a fixed head, the table of its parts and its header, followed by frames of bare payload.
Every frame is a ZeroMQ message of its own: a multipart message would be handed over only when its last byte has come,
and could not be copied to its place, and its memory used again, while the rest is under way.

Both sides cut the payload by the same rule (`cut`), so that no frame needs a head. Small parts share a frame.

A connection begins with three frames: the sender's hello, the receiver's challenge, which proves that it has the job's
token, and the sender's proof of the same (`authentication.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

MAGIC = 0xF2DA
VERSION = 2
"""1 had no challenge and no proof."""
SMALL_PART_BYTES = 32 * 1024
"""Parts below this share frames: a copy costs less than a frame of their own."""
JOINED_FRAME_BYTES = 256 * 1024
MOST_FRAME_BYTES = 4 * 1024 * 1024
"""ZeroMQ slows down with larger ones."""
_ALIGNMENT_BYTES = 64

_HEAD = struct.Struct("<HBB")
_HELLO = struct.Struct("<16s16s")
_MESSAGE = struct.Struct("<QIII16sQ")
_PART = struct.Struct("<IQQ")
_SEQUENCE = struct.Struct("<Q")
NONCE_BYTES = 16
PROOF_BYTES = 32


class FrameKind(IntEnum):
    """What a frame is."""

    HELLO = 1
    MESSAGE = 2
    ACKNOWLEDGEMENT = 3
    REJECTION = 4
    CHALLENGE = 5
    PROOF = 6


class Malformed(Exception):
    """The bytes are not what they should be."""


class Hello(NamedTuple):
    """First frame of a connection.

    Attributes:
        incarnation: 16 random bytes of the sending endpoint.
        link: 16 random bytes of the connection, which nobody can have heard before: the sender's challenge.
    """

    incarnation: bytes
    link: bytes
    name: str


class Challenge(NamedTuple):
    """The receiver's answer to a hello: 16 random bytes, and 32 that prove the token for this hello and nonce."""

    nonce: bytes
    proof: bytes


class Reference(NamedTuple):
    """One part in the table; `region` is the sender's number of the mapped region, 0 if the part follows as frames."""

    region: int
    start_byte: int
    stop_byte: int

    @property
    def size_bytes(self) -> int:
        """How many bytes."""
        return self.stop_byte - self.start_byte


class Acknowledgement(NamedTuple):
    """What the application of an endpoint has received: all messages of a connection up to this one."""

    link: bytes
    sequence: int


NOTHING = Acknowledgement(bytes(16), 0)


class MessageHead(NamedTuple):
    """First frame of a message.

    Attributes:
        acknowledgement: of the other way; it saves a frame of its own, and two threads their waking up.
    """

    sequence: int
    frame_bytes: int
    references: tuple[Reference, ...]
    header: bytes
    acknowledgement: Acknowledgement = NOTHING


class FramePiece(NamedTuple):
    """Place of some bytes: from `start_byte` of a part, at `offset_bytes` of the frame."""

    part: int
    start_byte: int
    offset_bytes: int
    size_bytes: int


class FrameCut(NamedTuple):
    """One payload frame; a joined one carries small parts, each whole."""

    size_bytes: int
    pieces: tuple[FramePiece, ...]
    joined: bool


def cut(sizes: Sequence[int], frame_bytes: int) -> list[FrameCut]:
    """The payload frames of parts of these sizes (bytes), in order; parts of size 0 travel in none."""
    frames: list[FrameCut] = []
    joined: list[FramePiece] = []
    filled = 0

    def close_joined() -> None:
        nonlocal filled
        if joined:
            frames.append(FrameCut(filled, tuple(joined), joined=True))
            joined.clear()
        filled = 0

    for part, size in enumerate(sizes):
        if size == 0:
            continue
        if size < SMALL_PART_BYTES:
            offset = -(-filled // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            if offset + size > JOINED_FRAME_BYTES:
                close_joined()
                offset = 0
            joined.append(FramePiece(part, 0, offset, size))
            filled = offset + size
            continue
        close_joined()
        for start in range(0, size, frame_bytes):
            length = min(frame_bytes, size - start)
            frames.append(FrameCut(length, (FramePiece(part, start, 0, length),), joined=False))
    close_joined()
    return frames


def _frame(kind: FrameKind, *parts: bytes) -> bytes:
    return b"".join((_HEAD.pack(MAGIC, VERSION, kind), *parts))


def pack_hello(hello: Hello) -> bytes:
    """Frame of a hello."""
    return _frame(FrameKind.HELLO, _HELLO.pack(hello.incarnation, hello.link), hello.name.encode())


def pack_challenge(challenge: Challenge) -> bytes:
    """Frame of a challenge."""
    return _frame(FrameKind.CHALLENGE, *challenge)


def pack_proof(proof: bytes) -> bytes:
    """Frame of a sender's proof."""
    return _frame(FrameKind.PROOF, proof)


def pack_message(head: MessageHead) -> bytes:
    """First frame of a message."""
    fixed = _MESSAGE.pack(
        head.sequence, head.frame_bytes, len(head.references), len(head.header), *head.acknowledgement
    )
    table = b"".join(_PART.pack(*reference) for reference in head.references)
    return _frame(FrameKind.MESSAGE, fixed, table, head.header)


def pack_acknowledgement(sequence: int) -> bytes:
    """Frame which says that the application has received all messages up to `sequence`."""
    return _frame(FrameKind.ACKNOWLEDGEMENT, _SEQUENCE.pack(sequence))


def pack_rejection(reason: str) -> bytes:
    """Frame which says that the connection is of no use any more."""
    return _frame(FrameKind.REJECTION, reason.encode()[:200])


def kind_of(frame: bytes) -> FrameKind:
    """What a frame is.

    Raises:
        Malformed: nothing of ours, or of another version.
    """
    try:
        magic, version, kind = _HEAD.unpack_from(frame)
        if magic != MAGIC or version != VERSION:
            raise Malformed(f"magic {magic:#x}, version {version}; here it is {MAGIC:#x}, {VERSION}")
        return FrameKind(kind)
    except (struct.error, ValueError) as error:
        raise Malformed(str(error)) from error


def unpack_hello(frame: bytes) -> Hello:
    """Read `pack_hello`'s bytes.

    Raises:
        Malformed: they are not.
    """
    if kind_of(frame) is not FrameKind.HELLO:
        raise Malformed("the first frame is no hello")
    try:
        incarnation, link = _HELLO.unpack_from(frame, _HEAD.size)
        return Hello(incarnation, link, frame[_HEAD.size + _HELLO.size :].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error


def unpack_challenge(frame: bytes) -> Challenge:
    """Read `pack_challenge`'s bytes.

    Raises:
        Malformed: they are not.
    """
    content = _fixed(frame, FrameKind.CHALLENGE, NONCE_BYTES + PROOF_BYTES)
    return Challenge(content[:NONCE_BYTES], content[NONCE_BYTES:])


def unpack_proof(frame: bytes) -> bytes:
    """Read `pack_proof`'s bytes.

    Raises:
        Malformed: they are not.
    """
    return _fixed(frame, FrameKind.PROOF, PROOF_BYTES)


def unpack_message(frame: bytes, max_header_bytes: int, max_parts: int, max_message_bytes: int) -> MessageHead:
    """Read `pack_message`'s bytes.

    Raises:
        Malformed: they are not, or they announce more than the bounds.
    """
    if kind_of(frame) is not FrameKind.MESSAGE:
        raise Malformed("a frame where a message should begin")
    start = _HEAD.size + _MESSAGE.size
    if len(frame) < start:
        raise Malformed(f"{len(frame)} bytes are too few for a message")
    sequence, frame_bytes, parts, header_bytes, *received = _MESSAGE.unpack_from(frame, _HEAD.size)
    if parts > max_parts or header_bytes > max_header_bytes:
        raise Malformed(f"{parts} parts and {header_bytes} bytes of header; at most {max_parts} and {max_header_bytes}")
    if not SMALL_PART_BYTES <= frame_bytes <= MOST_FRAME_BYTES:
        raise Malformed(f"cut by {frame_bytes} bytes")
    stop = start + parts * _PART.size
    if len(frame) != stop + header_bytes:
        raise Malformed(f"{len(frame)} bytes where {stop + header_bytes} were announced")
    references = tuple(Reference(*fields) for fields in _PART.iter_unpack(frame[start:stop]))
    if any(reference.size_bytes < 0 for reference in references):
        raise Malformed("a part that ends before it starts")
    if sum(reference.size_bytes for reference in references) > max_message_bytes:
        raise Malformed(f"more than {max_message_bytes} bytes of parts")
    return MessageHead(sequence, frame_bytes, references, frame[stop:], Acknowledgement(*received))


def unpack_sequence(frame: bytes) -> int:
    """Read `pack_acknowledgement`'s bytes.

    Raises:
        Malformed: they are not.
    """
    try:
        (sequence,) = _SEQUENCE.unpack_from(frame, _HEAD.size)
    except struct.error as error:
        raise Malformed(str(error)) from error
    return int(sequence)


def unpack_reason(frame: bytes) -> str:
    """Read `pack_rejection`'s bytes, whatever they hold."""
    return frame[_HEAD.size :].decode(errors="replace")


def _fixed(frame: bytes, kind: FrameKind, size_bytes: int) -> bytes:
    found = kind_of(frame)
    if found is not kind or len(frame) != _HEAD.size + size_bytes:
        raise Malformed(f"a {found.name.lower()} of {len(frame)} bytes where a {kind.name.lower()} belongs")
    return frame[_HEAD.size :]

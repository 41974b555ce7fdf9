"""Keys with which a fleet's learner signs, on disk: a private file a role, and the chain of roots that names them.

They are made at the first start. The root's key signs only the next root, so its file may be kept on another machine,
where a rotation is then signed. A rotation ends with the next root's file: a learner killed before has the old keys,
one killed after the new. The commit record has the newest root's number, so that lost keys are never made anew unasked,
and an older root is not taken.
Source: The Update Framework's roles; see `policy_net/exchange/signed_documents.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from foundation.files import PRIVATE, write_whole
from foundation.text import parse_json
from global_learner.errors import BadRequest, StateUnusable
from global_learner.storage.commits import ROOTS, Commits
from policy_net.errors import NotTrusted, SecretExposed
from policy_net.exchange.identity_file import make_private_folder, read_private, write_private
from policy_net.exchange.signed_documents import (
    KeyRole,
    Root,
    SignedDocument,
    follow_roots,
    public_hex,
    read_root,
    signed,
)

_log = structlog.get_logger()

FOLDER = "signing"
"""Of the state directory."""
_FLEET_BYTES = 16
_WAITING = ".next.key"
_BEGIN_ANEW = "begin with new keys, which agents must be told to trust: `global-learner accept-loss`"


class FleetKeys:
    """The keys in a folder; made where there are none."""

    def __init__(self, folder: Path, commits: Commits | None = None) -> None:
        """Open or make; `commits` is the state directory's record, in which the roots are counted.

        Raises:
            StateUnusable: a file is missing, damaged, or does not belong to the others.
            SecretExposed: others may read a key.
        """
        self._folder = folder
        self._commits = commits
        with _usable(folder):
            if commits is not None:
                commits.found(ROOTS, len(_root_files(folder)), str(folder))
            make_private_folder(folder)
            if not _root_files(folder):
                self._begin()
            self.roots: tuple[SignedDocument, ...] = tuple(map(_read_root_file, _root_files(folder)))
            self.root: Root = follow_roots(self.roots)
            self._keys = {role: self._key_in_force(role) for role in (KeyRole.VERSION, KeyRole.TIMESTAMP)}
            self._settle_root_key()
            self._count()

    @property
    def root_key_present(self) -> bool:
        """Whether the root's key is here, and not kept elsewhere."""
        return _path(self._folder, KeyRole.ROOT).exists()

    @property
    def earlier_version_keys(self) -> tuple[str, ...]:
        """Public keys that signed versions before a rotation."""
        now = self.root.keys[KeyRole.VERSION]
        keys = [key for document in self.roots for key in read_root(document).keys[KeyRole.VERSION] if key not in now]
        return tuple(dict.fromkeys(keys))

    def sign(self, role: KeyRole, payload: bytes) -> SignedDocument:
        """Signed statement of a version, or timestamp."""
        return signed(payload, [self._keys[role]])

    def next_root(self, role: KeyRole) -> bytes:
        """The next root, with a new key of this role, which waits on disk; the same one each time. Nothing changes yet.

        Raises:
            BadRequest: it is the root's own key, which is made where it is kept.
            OSError: the disk refuses.
        """
        if role is KeyRole.ROOT and not self.root_key_present:
            raise BadRequest(
                "the root key is not on the learner's machine: rotate it where it is kept, with --root-key FILE and "
                "--new-root-key FILE"
            )
        if not _next(self._folder, role).exists():
            write_private(_next(self._folder, role), _pem(Ed25519PrivateKey.generate()))
        keys = {**self.root.keys, role: (public_hex(_read_key(_next(self._folder, role))),)}
        return dataclasses.replace(self.root, number=self.root.number + 1, keys=keys).to_bytes()

    def rotate(self, role: KeyRole) -> None:
        """Put a new key in a role's place, signed with the root's key, which must be here.

        Raises:
            OSError: the disk refuses.
        """
        payload = self.next_root(role)
        signers = [self._key_in_force(KeyRole.ROOT)]
        if role is KeyRole.ROOT:
            signers.append(_read_key(_next(self._folder, role)))
        self._install(signed(payload, signers))

    def install(self, changed: KeyRole, document: SignedDocument) -> None:
        """Take the next root, with another key of one role, signed where the root's key is kept.

        Raises:
            BadRequest: it does not follow the present one, changes something else, or names a key that is not here.
            OSError: the disk refuses.
        """
        try:
            following = follow_roots((*self.roots, document))
        except NotTrusted as error:
            raise BadRequest(f"this is not the next root: {error}") from error
        if any(following.keys[role] != self.root.keys[role] for role in KeyRole if role is not changed):
            raise BadRequest(f"root {following.number} changes more than the {changed} key")
        if changed is not KeyRole.ROOT and document.payload != self.next_root(changed):
            raise BadRequest(f"root {following.number} names a {changed} key that is not this learner's")
        self._install(document)

    def _install(self, document: SignedDocument) -> None:
        following = follow_roots((*self.roots, document))
        self._write_root(document, following.number)
        self._count(following.number)
        self.roots, self.root = (*self.roots, document), following
        self._keys = {role: self._key_in_force(role) for role in self._keys}
        self._settle_root_key()

    def _count(self, number: int | None = None) -> None:
        if self._commits is not None and self._commits.count(ROOTS) != (number or self.root.number):
            self._commits.committed(ROOTS, number or self.root.number)

    def _begin(self) -> None:
        for path in sorted(self._folder.glob("*.key")):
            if not path.name.endswith(_WAITING):
                raise StateUnusable(
                    f"{self._folder}: holds {path.name}, and no root: restore it from a copy, or {_BEGIN_ANEW}"
                )
        keys = {role: Ed25519PrivateKey.generate() for role in KeyRole}
        for role, key in keys.items():
            write_private(_next(self._folder, role), _pem(key))
        publics = {role: (public_hex(key),) for role, key in keys.items()}
        root = Root(secrets.token_hex(_FLEET_BYTES), 1, publics)
        self._write_root(signed(root.to_bytes(), [keys[KeyRole.ROOT]]), 1)
        _log.info("fleet-keys-made", folder=str(self._folder), fleet=root.fleet)

    def _write_root(self, document: SignedDocument, number: int) -> None:
        text = json.dumps(document.to_json(), indent=1) + "\n"
        write_whole(self._folder / f"root-{number:05d}.json", text, mode=PRIVATE)

    def _key_in_force(self, role: KeyRole) -> Ed25519PrivateKey:
        """The key that the newest root names; if it waited, it is put in its place."""
        path, key = _find_key(self._folder, role, self.root)
        if path != _path(self._folder, role):
            path.replace(_path(self._folder, role))
        return key

    def _settle_root_key(self) -> None:
        if _names_waiting(self._folder, KeyRole.ROOT, self.root) or self.root_key_present:
            self._key_in_force(KeyRole.ROOT)
        else:
            _log.info(
                "root-key-elsewhere",
                file=str(_path(self._folder, KeyRole.ROOT)),
                meaning="roots are signed where it is",
            )


def check_keys(folder: Path, commits: Commits) -> bool:
    """Whether the keys in a folder can still be used; changes nothing but notes losses.

    Raises:
        SecretExposed: others may read a key.
        StateUnusable: they cannot, and losses are refused.
    """
    files = _root_files(folder)
    known = commits.count(ROOTS)
    commits.found(ROOTS, len(files), str(folder))
    if len(files) < known or not (files or any(folder.glob("*.key"))):
        return not known
    try:
        with _usable(folder):
            root = follow_roots(tuple(map(_read_root_file, files)))
            for role in (KeyRole.VERSION, KeyRole.TIMESTAMP):
                _find_key(folder, role, root)
            if _path(folder, KeyRole.ROOT).exists():
                _find_key(folder, KeyRole.ROOT, root)
    except StateUnusable as error:
        commits.lose(str(error))
        return False
    return True


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateUnusable(f"{folder}: cannot be read and written ({error.strerror}); mend the disk") from error
    except NotTrusted as error:
        raise StateUnusable(
            f"{folder}: its roots cannot be used ({error}); restore it from a copy, or {_BEGIN_ANEW}"
        ) from error


def _path(folder: Path, role: KeyRole) -> Path:
    return folder / f"{role}.key"


def _next(folder: Path, role: KeyRole) -> Path:
    return folder / f"{role}{_WAITING}"


def _root_files(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob("root-*.json"))


def _names_waiting(folder: Path, role: KeyRole, root: Root) -> bool:
    """Whether the key that waits is the one that the root names."""
    waiting = _next(folder, role)
    return waiting.exists() and public_hex(_read_key(waiting)) in root.keys[role]


def _find_key(folder: Path, role: KeyRole, root: Root) -> tuple[Path, Ed25519PrivateKey]:
    """The key that a root names, and where it lies: in its place, or waiting.

    Raises:
        StateUnusable: it is not there.
    """
    if _names_waiting(folder, role, root):
        return _next(folder, role), _read_key(_next(folder, role))
    path = _path(folder, role)
    if not path.exists():
        raise StateUnusable(
            f"{path}: is gone; restore it from a copy: without it nothing can be signed; or {_BEGIN_ANEW}"
        )
    key = _read_key(path)
    if public_hex(key) not in root.keys[role]:
        if role is KeyRole.ROOT:
            raise StateUnusable(f"{path}: is not the key of root {root.number}; move it away")
        raise StateUnusable(f"{path}: is not the {role} key of root {root.number}; restore it, or {_BEGIN_ANEW}")
    return path, key


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """A private key from a file.

    Raises:
        BadRequest: it cannot be read, or is no such key.
        SecretExposed: others may read it.
    """
    try:
        return _read_key(path)
    except (OSError, StateUnusable) as error:
        raise BadRequest(f"{path}: is no Ed25519 private key (PEM) that can be read") from error


def new_signing_key(path: Path) -> Ed25519PrivateKey:
    """A new private key, in a file that must not be there yet.

    Raises:
        BadRequest: there is a file of this name, or it cannot be written.
    """
    if path.exists():
        raise BadRequest(f"{path}: is there already; name a file that is not")
    key = Ed25519PrivateKey.generate()
    try:
        write_private(path, _pem(key))
    except OSError as error:
        raise BadRequest(f"{path}: cannot be written ({error.strerror})") from error
    return key


def _read_root_file(path: Path) -> SignedDocument:
    try:
        return SignedDocument.from_json(parse_json(path.read_bytes()))
    except (ValueError, NotTrusted) as error:
        raise StateUnusable(f"{path}: damaged ({error}); restore it from a copy") from error


def _read_key(path: Path) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(read_private(path), None)
    except SecretExposed:
        raise
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StateUnusable(f"{path}: is no private key; restore it from a copy") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise StateUnusable(f"{path}: is a private key of another kind than Ed25519; restore it from a copy")
    return key


def _pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

"""A real etcd and kube-apiserver, from a folder with their programs, for the suite that says what faithful means."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

_START_SECONDS = 120.0
_TOKEN = "contract-suite"


@contextlib.contextmanager
def real_server(binaries: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Its address, and the token of one who may do everything."""
    key = rsa.generate_private_key(65537, 2048)
    private, public = folder / "accounts.key", folder / "accounts.pub"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    (folder / "tokens.csv").write_text(f'{_TOKEN},admin,admin,"system:masters"\n', encoding="utf-8")
    client, peer, secure = (f"http://127.0.0.1:{_port()}", f"http://127.0.0.1:{_port()}", _port())
    etcd = [
        str(binaries / "etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        "--unsafe-no-fsync",
    ]
    server = [
        str(binaries / "kube-apiserver"),
        f"--etcd-servers={client}",
        "--bind-address=127.0.0.1",
        f"--secure-port={secure}",
        f"--cert-dir={folder / 'certificates'}",
        "--service-account-issuer=https://127.0.0.1/",
        f"--service-account-key-file={public}",
        f"--service-account-signing-key-file={private}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--disable-admission-plugins=ServiceAccount",
    ]
    with contextlib.ExitStack() as stack:
        for words in (etcd, server):
            log = stack.enter_context((folder / f"{Path(words[0]).name}.log").open("wb"))
            process = subprocess.Popen(words, stdout=log, stderr=log)
            stack.callback(process.wait, 30)
            stack.callback(process.kill)
        address = f"https://127.0.0.1:{secure}"
        _wait_ready(address, folder / "kube-apiserver.log")
        yield address, _TOKEN


def _wait_ready(address: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    request = urllib.request.Request(f"{address}/readyz", headers={"Authorization": f"Bearer {_TOKEN}"})
    while True:
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(request, timeout=5, context=ssl._create_unverified_context()) as answer,
        ):
            if answer.status == 200:
                return
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")[-2000:]
        time.sleep(0.2)


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])

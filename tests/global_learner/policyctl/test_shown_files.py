"""Files of a watch's connection are replaced between two looks: the next one shows what can be used."""

import time
from pathlib import Path

import pytest
from made_certificates import MadeAuthority, MountedSecret

from global_learner.policyctl.client import ShownFiles, TlsFiles
from policy_net.errors import IdentityFileError


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
def test_a_watch_shows_the_certificate_of_before_while_a_replaced_one_cannot_be_used(tmp_path: Path, name: str) -> None:
    authority, secret, now = MadeAuthority(), MountedSecret(tmp_path / "mounted"), time.time()

    def put() -> None:
        certificate, key = authority.pair("policyctl", now - 60.0, now + 3600.0)
        secret.put(tls_crt=certificate, tls_key=key, ca_crt=authority.certificate(now - 60.0, now + 3600.0))

    put()
    refused: list[str] = []
    files = [secret.folder / file for file in ("ca.crt", "tls.crt", "tls.key")]
    shown = ShownFiles(TlsFiles(*files), refused.append)
    first = shown.credentials()
    assert shown.credentials() is first
    (secret.folder / name).write_bytes(b"")
    assert [shown.credentials(), shown.credentials()] == [first, first]
    assert len(refused) == 1
    assert name in refused[0]
    put()
    assert shown.credentials() is not first


def test_a_watch_with_an_identity_file_follows_it_and_refuses_one_that_others_may_read(tmp_path: Path) -> None:
    authority, now, path = MadeAuthority(), time.time(), tmp_path / "ada.pem"

    def put(mode: int = 0o600) -> None:
        certificate, key = authority.pair("ada", now - 60.0, now + 3600.0)
        path.write_bytes(key + certificate + authority.certificate(now - 60.0, now + 3600.0))
        path.chmod(mode)

    put()
    refused: list[str] = []
    shown = ShownFiles(TlsFiles(certificate=path), refused.append)
    first = shown.credentials()
    put(0o644)
    assert shown.credentials() is first
    assert "chmod 600" in refused[0]
    path.chmod(0o600)
    assert shown.credentials() is not first


def test_a_first_look_with_files_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IdentityFileError, match="cannot be read"):
        ShownFiles(TlsFiles(certificate=tmp_path / "nobody.pem"), lambda _: None).credentials()

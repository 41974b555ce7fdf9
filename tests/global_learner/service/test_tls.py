"""Mutual TLS through the real server: a cluster is who its certificate says."""

import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
from learner_process import DEADLINE_SECONDS, LearnerProcess
from made_certificates import DAY_SECONDS, MadeAuthority, MountedSecret

from foundation.command_line import run
from foundation.followed_files import POLL_SECONDS
from global_learner.policyctl import cli as policyctl
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command to make certificates"),
]
CALL_SECONDS = 60.0


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority and what it signed: the learner, two clusters, and people of three roles."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca = folder / "ca.pem"
    openssl("req", "-x509", *key, "-keyout", f"{folder}/ca.key", "-out", str(ca), "-subj", "/CN=test-ca", "-days", "2")
    states = {"vera": ",URI:fedl2:role:viewer", "olga": ",URI:fedl2:role:operator", "posing": ",URI:fedl2:role:admin"}
    for name in ("learner", "north", "south", "policyctl", *states):
        request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
        openssl("req", *key, "-keyout", f"{folder}/{name}.key", "-out", str(request), "-subj", f"/CN={name}")
        own = "IP:127.0.0.1" if name == "learner" else f"DNS:{name}"
        extensions.write_text(f"subjectAltName={own}{states.get(name, '')}\n")
        signer = ("-CA", str(ca), "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-extfile", str(extensions))
        openssl("x509", "-req", "-in", str(request), *signer, "-out", f"{folder}/{name}.pem", "-days", "2")
    return folder


@pytest.fixture(scope="module")
def learner(certificates: Path, tmp_path_factory: pytest.TempPathFactory):
    files = {"certificate_file": "learner.pem", "key_file": "learner.key", "client_ca_file": "ca.pem"}
    tls: dict[str, object] = {setting: str(certificates / name) for setting, name in files.items()}
    tls["admin_names"] = ["policyctl", "vera", "olga"]
    process = LearnerProcess(tmp_path_factory.mktemp("learner"), tls=tls)
    process.start()
    yield process
    process.close()


def channel(learner: LearnerProcess, certificates: Path, name: str | None) -> grpc.Channel:
    pair = (None, None)
    if name is not None:
        pair = ((certificates / f"{name}.key").read_bytes(), (certificates / f"{name}.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes(), *pair)
    return grpc.secure_channel(learner.address, credentials)


def status_of(call, request) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=CALL_SECONDS)
    return caught.value.code()


def test_a_cluster_is_who_its_certificate_says(learner: LearnerProcess, certificates: Path) -> None:
    with channel(learner, certificates, "north") as wire:
        fleet = rpc.FleetStub(wire)
        first = fleet.Register(pb.RegisterRequest(cluster="north"), timeout=CALL_SECONDS)
        unnamed = fleet.Register(pb.RegisterRequest(), timeout=CALL_SECONDS)
        assert unnamed.incarnation == first.incarnation + 1
        assert status_of(fleet.Register, pb.RegisterRequest(cluster="south")) is grpc.StatusCode.PERMISSION_DENIED
        request = pb.PushRequest(cluster="south", incarnation=1, sequence=1)
        assert status_of(fleet.Push, request) is grpc.StatusCode.PERMISSION_DENIED


def test_a_cluster_may_not_ask_about_the_fleet(learner: LearnerProcess, certificates: Path) -> None:
    with channel(learner, certificates, "north") as wire:
        status = status_of(rpc.AdminStub(wire).GetFleet, pb.GetFleetRequest())
        assert status is grpc.StatusCode.PERMISSION_DENIED


def test_nobody_gets_in_without_a_certificate(learner: LearnerProcess, certificates: Path) -> None:
    with channel(learner, certificates, None) as wire:
        status = status_of(rpc.FleetStub(wire).Register, pb.RegisterRequest(cluster="north"))
        assert status is grpc.StatusCode.UNAVAILABLE
    with learner.channel() as plain:
        status = status_of(rpc.FleetStub(plain).Register, pb.RegisterRequest(cluster="north"))
        assert status is grpc.StatusCode.UNAVAILABLE


def test_policyctl_shows_its_certificate(learner: LearnerProcess, certificates: Path, capsys) -> None:
    def asked(name: str) -> int:
        files = ["--ca", "ca.pem", "--cert", f"{name}.pem", "--key", f"{name}.key"]
        paths = [word if word.startswith("--") else str(certificates / word) for word in files]
        return run(policyctl.app, "policyctl", ["fleet", "--learner", learner.address, *paths])

    assert asked("policyctl") == 0
    assert run(policyctl.app, "policyctl", ["fleet", "--learner", learner.address]) == 3
    assert "name your identity file with --cert" in capsys.readouterr().err
    assert asked("north") == 1
    assert "may not ask about the fleet" in capsys.readouterr().err


def test_a_uri_in_somebody_elses_certificate_lessens_what_a_name_may(
    learner: LearnerProcess, certificates: Path
) -> None:
    poll, pin, rotate = pb.GetFleetRequest(), pb.PinVersionRequest(version=1, pinned=True), pb.RotateKeyRequest()
    denied = grpc.StatusCode.PERMISSION_DENIED
    with channel(learner, certificates, "vera") as wire:
        admin = rpc.AdminStub(wire)
        admin.GetFleet(poll, timeout=CALL_SECONDS)
        assert status_of(admin.PinVersion, pin) is denied
        assert status_of(rpc.FleetStub(wire).Register, pb.RegisterRequest(cluster="vera")) is denied
    with channel(learner, certificates, "olga") as wire:
        admin = rpc.AdminStub(wire)
        admin.PinVersion(pin, timeout=CALL_SECONDS)
        assert status_of(admin.RotateKey, rotate) is denied
        (line,) = [
            line for line in admin.ListAudit(pb.ListAuditRequest(), timeout=60).entries if line.action == "pinned"
        ]
        assert line.actor == "olga"
    with channel(learner, certificates, "policyctl") as wire:
        assert status_of(rpc.AdminStub(wire).RotateKey, rotate) is grpc.StatusCode.INVALID_ARGUMENT, "no role to rotate"
    with channel(learner, certificates, "posing") as wire:
        assert status_of(rpc.AdminStub(wire).GetFleet, poll) is denied
        assert status_of(rpc.FleetStub(wire).Register, pb.RegisterRequest(cluster="posing")) is denied
        assert status_of(rpc.FleetStub(wire).FetchPolicy, pb.FetchPolicyRequest(version=1)) is denied


def test_a_name_of_somebody_elses_authority_can_be_turned_out_too(
    learner: LearnerProcess, certificates: Path, capsys
) -> None:
    def asked(*words: str) -> int:
        files = ["--ca", "ca.pem", "--cert", "policyctl.pem", "--key", "policyctl.key"]
        paths = [word if word.startswith("--") else str(certificates / word) for word in files]
        return run(policyctl.app, "policyctl", [*words, "--learner", learner.address, *paths])

    with channel(learner, certificates, "south") as wire:
        fleet = rpc.FleetStub(wire)
        fleet.Register(pb.RegisterRequest(cluster="south"), timeout=CALL_SECONDS)
        assert asked("cluster", "revoke", "south", "--yes") == 0
        assert status_of(fleet.Register, pb.RegisterRequest(cluster="south")) is grpc.StatusCode.PERMISSION_DENIED
        assert status_of(fleet.FetchPolicy, pb.FetchPolicyRequest(version=1)) is grpc.StatusCode.PERMISSION_DENIED
    with channel(learner, certificates, "north") as wire:
        rpc.FleetStub(wire).Register(pb.RegisterRequest(cluster="north"), timeout=CALL_SECONDS)
    capsys.readouterr()
    assert asked("fleet", "-o", "json") == 0
    statuses = {entry["cluster"]: entry["identity"] for entry in json.loads(capsys.readouterr().out)["clusters"]}
    assert statuses == {"north": None, "south": "revoked"}
    assert asked("cluster", "enroll", "east") == 1
    assert "this learner signs no certificates" in capsys.readouterr().err


def test_a_replaced_certificate_is_shown_and_readiness_tells_when_one_has_expired(tmp_path: Path) -> None:
    authority, secret, begins = MadeAuthority(), MountedSecret(tmp_path / "mounted"), time.time() - DAY_SECONDS

    def put(ends: float) -> bytes:
        certificate, key = authority.pair("learner", begins, ends)
        secret.put(tls_crt=certificate, tls_key=key, ca_crt=authority.certificate(begins, begins + 9 * DAY_SECONDS))
        return certificate

    put(begins + 9 * DAY_SECONDS)
    files = {"certificate_file": "tls.crt", "key_file": "tls.key", "client_ca_file": "ca.crt"}
    process = LearnerProcess(tmp_path, tls={name: str(secret.folder / file) for name, file in files.items()})
    process.start()

    def shows(certificate: bytes) -> bool:
        shown = ssl.get_server_certificate(("127.0.0.1", process.port), timeout=CALL_SECONDS)
        return ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(certificate.decode())

    def page(path: str) -> str:
        try:
            with urlopen(f"http://127.0.0.1:{process.http_port}/{path}", timeout=CALL_SECONDS) as reply:
                return reply.read().decode()
        except HTTPError as error:
            return error.read().decode()

    def wait_until(holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, what
            time.sleep(0.2)

    try:
        short = put(time.time() + 2.5 * POLL_SECONDS)
        wait_until(lambda: shows(short), "a replaced certificate is shown")
        wait_until(lambda: page("readyz").startswith("not ready: certificate service has expired, on 20"), "expired")
        (secret.folder / "tls.key").write_bytes(b"")
        wait_until(lambda: 'secret_refused_flag{secret="service"} 1.0' in page("metrics"), "an empty key is refused")
        assert "what was put in its place is not used" in page("readyz")
        last = put(begins + 9 * DAY_SECONDS)
        wait_until(lambda: shows(last), "the files are mended")
        wait_until(lambda: page("readyz") == "ready\n", "ready again")
    finally:
        process.close()

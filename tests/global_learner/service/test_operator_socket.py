"""Who may rule a learner without certificates: its own user, by a socket in a folder that is closed to all others."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import grpc
import pytest
from learner_process import LearnerProcess

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc

pytestmark = pytest.mark.heavy
CALL_SECONDS = 60.0
RULING = {
    "GetFleet": pb.GetFleetRequest(),
    "AssignVersion": pb.AssignVersionRequest(version=1, all=True),
    "ResetHead": pb.ResetHeadRequest(version=1),
    "ReleaseCluster": pb.ReleaseClusterRequest(cluster="north"),
    "ListAudit": pb.ListAuditRequest(),
}


def test_without_certificates_nobody_rules_over_the_port_and_its_owner_does_by_the_socket(
    tmp_path: Path, capsys
) -> None:
    folder = tmp_path / ("long-" * 20)  # longer than a socket's path may be
    folder.mkdir()
    learner = LearnerProcess(folder)
    learner.state_dir.mkdir(mode=0o777)
    learner.state_dir.chmod(0o777)
    learner.start()
    try:
        with learner.channel() as channel:
            rpc.FleetStub(channel).Register(pb.RegisterRequest(cluster="north"), timeout=CALL_SECONDS)
            for method, request in RULING.items():
                with pytest.raises(grpc.RpcError) as caught:
                    getattr(rpc.AdminStub(channel), method)(request, timeout=CALL_SECONDS)
                assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
                assert "operator.sock" in caught.value.details()
        with learner.operators() as channel:
            for method, request in RULING.items():
                getattr(rpc.AdminStub(channel), method)(request, timeout=CALL_SECONDS)
            assert (
                rpc.FleetStub(channel).FetchPolicy(pb.FetchPolicyRequest(version=1), timeout=CALL_SECONDS).policy_file
            )
            with pytest.raises(grpc.RpcError) as caught:
                rpc.FleetStub(channel).Register(pb.RegisterRequest(cluster="north"), timeout=CALL_SECONDS)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert run(policyctl.app, "policyctl", ["audit", "--learner", learner.operator_address, "-o", "json"]) == 0
        assert {line["actor"] for line in json.loads(capsys.readouterr().out)} == {"operator"}
        assert json.loads((folder / "ports.json").read_text())["operator_socket"] == learner.operator_address[5:]
        private(learner.state_dir)
        learner.kill()
        learner.start()
        assert learner.fleet().clusters[0].cluster == "north"
        assert learner.end() == 0
    finally:
        learner.close()


def private(folder: Path) -> None:
    """Everything is its owner's alone."""
    for place in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(os.lstat(place).st_mode)
        assert not mode & 0o077, f"{place} has mode {mode:o}"

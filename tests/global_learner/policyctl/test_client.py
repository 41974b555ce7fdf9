"""Questions to a learner of an earlier version: what it would do instead of trying is not asked."""

import pytest

from global_learner.errors import BadLearnerConfig
from global_learner.policyctl.client import AdminClient, TlsFiles
from policy_net.exchange.generated import fleet_pb2 as pb


@pytest.mark.parametrize(
    ("known", "of_people", "of_clusters"),
    [
        (pb.GetFleetReply(), False, False),
        (pb.GetFleetReply(away_seconds=180.0), False, True),
        (pb.GetFleetReply(away_seconds=180.0, tries_people=True), True, True),
    ],
)
def test_a_trial_is_asked_of_a_learner_that_knows_it_alone(
    monkeypatch: pytest.MonkeyPatch, known: pb.GetFleetReply, of_people: bool, of_clusters: bool
) -> None:
    client = AdminClient("127.0.0.1:1", TlsFiles(None, None, None), 5.0)
    monkeypatch.setattr(client, "fleet", lambda: known)
    asked: list[object] = []
    answers = {"RevokeOperatorRequest": pb.RevokeOperatorReply(), "RevokeClusterRequest": pb.RevokeClusterReply()}

    def call(_: object, request: object) -> object:
        asked.append(request)
        return answers[type(request).__name__]

    monkeypatch.setattr(client, "_call", call)
    for knows, ask in (
        (of_people, lambda: client.ask(pb.RevokeOperatorRequest(name="ada", dry_run=True))),
        (of_clusters, lambda: client.ask(pb.RevokeClusterRequest(cluster="north", dry_run=True))),
    ):
        asked.clear()
        if knows:
            ask()
            assert len(asked) == 1
        else:
            with pytest.raises(BadLearnerConfig, match=r"knows no --dry-run here and would do it; upgrade it first"):
                ask()
            assert asked == []

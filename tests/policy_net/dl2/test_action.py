from policy_net.dl2.action import GRANT_KINDS, Grant, void_index


def test_void_is_the_action_behind_those_of_all_jobs() -> None:
    actions = [GRANT_KINDS * column + grant for column in range(20) for grant in Grant]
    assert [*actions, void_index(20)] == list(range(61))


def test_a_bundle_gives_one_of_each() -> None:
    assert [(grant.workers, grant.ps) for grant in Grant] == [(1, 0), (0, 1), (1, 1)]

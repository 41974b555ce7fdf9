"""The lease in a real server: one holder at a time, and what an earlier one may still do."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from learner_makers import policy
from learner_makers import settings as learner_settings
from postgres_server import own_server, shared_server
from reserved_port import ReservedPort

from global_learner.errors import BadLearnerConfig, DatabaseAway, LeaseLost, StateUnusable
from global_learner.postgres.lease import LeaseHolder, LeaseTable, hold
from global_learner.postgres.server import Server, checked_url
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.storage.commits import Commits
from global_learner.storage.databases import SharedDatabase
from global_learner.storage.state_dir import StateDir

LONG, OVER = 3600.0, 0.0


@pytest.fixture
def url() -> str:
    return shared_server().new_database()


@pytest.fixture
def table(url: str) -> Iterator[LeaseTable]:
    with contextlib.closing(LeaseTable(Server(url))) as made:
        yield made


def registry(url: str, fence: int, folder: Path, commits: Commits | None = None) -> Registry:
    return Registry(folder, commits, shared=SharedDatabase(Server(url), fence))


def test_one_has_it_until_it_is_over_and_every_holder_has_a_higher_number(table: LeaseTable) -> None:
    assert table.holder() is None
    assert table.take("first", LONG) == 1
    assert table.take("second", LONG) is None
    assert table.holder() == LeaseHolder("first", 1, in_force=True)
    table.release(1)
    assert table.holder() == LeaseHolder("first", 1, in_force=False)
    assert table.take("second", OVER) == 2
    assert table.take("first", LONG) == 3


def test_it_is_renewed_until_somebody_took_it_also_after_it_ran_out(table: LeaseTable) -> None:
    assert table.take("first", OVER) == 1
    table.renew(1, LONG)
    assert table.take("second", LONG) is None
    table.release(1)
    assert table.take("second", LONG) == 2
    with pytest.raises(LeaseLost, match="another learner took the lease that this one held under number 1"):
        table.renew(1, LONG)
    table.release(1)
    assert table.holder() == LeaseHolder("second", 2, in_force=True), "an earlier holder has nothing to give back"


def test_of_many_that_ask_at_once_one_gets_it(url: str) -> None:
    barrier = threading.Barrier(6)

    def ask(number: int) -> int | None:
        with contextlib.closing(LeaseTable(Server(url))) as table:
            barrier.wait(60.0)
            return table.take(f"learner {number}", LONG)

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(ask, range(6)))
    assert sorted(answers, key=str) == [1, *[None] * 5]


def test_what_an_earlier_holder_writes_is_refused_and_rolled_back(url: str, table: LeaseTable, tmp_path: Path) -> None:
    assert table.take("first", OVER) == 1
    with contextlib.closing(registry(url, 1, tmp_path)) as first:
        first.note("ada", "pinned", "v1", "", 1.0)
        assert table.take("second", LONG) == 2
        with pytest.raises(LeaseLost):
            first.note("ada", "pinned", "v2", "", 2.0)
        assert [entry.subject for entry in first.audit()] == ["v1"]
    with pytest.raises(LeaseLost):
        registry(url, 1, tmp_path)
    with contextlib.closing(registry(url, 2, tmp_path)) as second:
        second.note("ada", "pinned", "v3", "", 3.0)
        assert [entry.subject for entry in second.audit()] == ["v1", "v3"], "no line of the log is missing or twice"


def test_a_takeover_waits_for_a_transaction_that_is_about_to_end_and_a_renewal_does_not(
    url: str, table: LeaseTable
) -> None:
    assert table.take("first", OVER) == 1
    engine = Server(url).engine("public")
    with engine.connect() as connection, ThreadPoolExecutor(1) as thread:
        hold(connection, 1)
        table.renew(1, OVER)
        with contextlib.closing(LeaseTable(Server(url))) as other:
            taken = thread.submit(other.take, "second", LONG)
            waiting = "wait_event_type = 'Lock' AND query LIKE '%INSERT INTO lease%'"
            while not taken.done():
                if shared_server().sql(url, f"SELECT count(*) FROM pg_stat_activity WHERE {waiting}") == "1":  # noqa: S608
                    break
            assert not taken.done()
            connection.rollback()
            assert taken.result(60.0) == 2
    engine.dispose()


def test_a_database_that_is_older_than_the_state_directory_is_refused(
    url: str, table: LeaseTable, tmp_path: Path
) -> None:
    assert table.take("first", LONG) == 1
    with (
        contextlib.closing(Commits(tmp_path)) as commits,
        contextlib.closing(registry(url, 1, tmp_path, commits)) as book,
    ):
        for number in range(3):
            book.note("ada", "pinned", f"v{number}", "", 1.0)
    shared_server().sql(url, "UPDATE learner_registry.commits SET count = count - 1 WHERE store = 'registry'")
    with contextlib.closing(Commits(tmp_path)) as commits, pytest.raises(StateUnusable, match="fell back"):
        registry(url, 1, tmp_path, commits)


def test_a_server_that_is_away_is_told_from_settings_that_are_wrong(url: str) -> None:
    reserved = ReservedPort()
    with contextlib.closing(reserved), pytest.raises(DatabaseAway, match="come again"):
        LeaseTable(Server(f"postgresql://fleet:secret@127.0.0.1:{reserved.port}/fleet")).take("first", LONG)
    with pytest.raises(BadLearnerConfig, match="mend the URL") as refusal:
        LeaseTable(Server(f"{url.replace('fleet@', 'fleet:secret@')}_that_there_is_not")).take("first", LONG)
    assert "secret" not in str(refusal.value)
    with pytest.raises(BadLearnerConfig, match="mend the URL"):
        LeaseTable(Server(url.replace("fleet@", "nobody@"))).take("first", LONG)


def test_a_server_that_restarts_is_used_again() -> None:
    server = own_server()
    with contextlib.closing(server), contextlib.closing(LeaseTable(Server(server.new_database()))) as table:
        assert table.take("first", LONG) == 1
        server.stop()
        with pytest.raises(DatabaseAway):
            table.renew(1, LONG)
        server.start()
        table.renew(1, LONG)


@pytest.mark.parametrize(
    "text", ["", "fleet", "sqlite:///fleet", "postgresql://host", "mysql://u@h/d", "postgresql://u@h:x/d"]
)
def test_what_is_no_url_of_a_database_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be postgresql://"):
        checked_url(text)


def test_a_database_that_goes_away_amid_a_recovery_is_no_damage(tmp_path: Path) -> None:
    server = own_server()
    config = learner_settings(tmp_path)
    with contextlib.closing(server), StateDir(config.state_dir) as state:
        url = server.new_database()
        with contextlib.closing(LeaseTable(Server(url))) as table:
            fence = table.take("first", LONG)
        assert fence is not None
        with contextlib.closing(registry(url, fence, state.path, state.commits)) as book:
            server.stop()
            with pytest.raises(DatabaseAway, match="start again"):
                recover(state, book, config, policy(), 0.0)
            server.start()
            assert recover(state, book, config, policy(), 0.0).head.step == 0

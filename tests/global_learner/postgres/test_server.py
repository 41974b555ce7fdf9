"""What a server's failures mean: come again, no room, or mend the settings."""

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError

from global_learner.errors import BadLearnerConfig, DatabaseAway, LearnerError
from global_learner.postgres import server as server_module
from global_learner.postgres.server import Server, is_away, is_full
from global_learner.storage.disk import is_disk_full

SERVER = Server("postgresql://fleet:secret@db.example.org/fleet")


def failure(code: str | None, message: str = "no") -> DBAPIError:
    origin = psycopg.OperationalError(message)
    origin.sqlstate = code
    return OperationalError("SELECT 1", {}, origin)


@pytest.mark.parametrize(
    "code", ["08006", "57P01", "57P03", "57014", "53300", "55P03", "25P03", "25006", "40001", None]
)
def test_what_passes_is_waited_for(code: str | None) -> None:
    error = failure(code)
    assert is_away(error)
    assert not is_disk_full(error)
    assert isinstance(SERVER.translated(error), DatabaseAway)


def test_a_full_disk_is_one_wherever_it_is() -> None:
    assert is_full(failure("53100"))
    assert is_disk_full(failure("53100"))
    assert not is_away(failure("53100"))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("28P01", "no"),
        ("3D000", "no"),
        (None, 'FATAL:  password authentication failed for user "fleet"'),
        (None, 'FATAL:  role "fleet" does not exist'),
        (None, "FATAL:  no pg_hba.conf entry for host"),
    ],
)
def test_what_stays_wrong_is_for_the_owner_to_mend(code: str | None, message: str) -> None:
    reported = SERVER.translated(failure(code, message))
    assert isinstance(reported, BadLearnerConfig)
    assert "secret" not in str(reported)
    assert "\n" not in str(reported)


@pytest.mark.parametrize("code", ["42501", "42P01", "23505"])
def test_a_fault_is_neither(code: str) -> None:
    reported = SERVER.translated(failure(code))
    assert type(reported) is LearnerError


def test_errors_of_other_databases_are_not_a_servers() -> None:
    assert not is_away(OperationalError("SELECT 1", {}, Exception("database is locked")))
    assert not is_away(ValueError("no"))


def test_without_the_driver_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")

    monkeypatch.setattr(server_module, "create_engine", missing)
    with pytest.raises(BadLearnerConfig, match=r"pip install 'fedl2\[postgres\]'"):
        SERVER.engine("public")

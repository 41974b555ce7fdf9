"""The database's password is replaced while a learner runs: the file that holds it is read at each connection."""

from pathlib import Path

import pytest
from postgres_server import PostgresServer, own_server
from sqlalchemy.exc import SQLAlchemyError

from global_learner.errors import BadLearnerConfig, DatabaseAway
from global_learner.postgres.server import Server

pytestmark = pytest.mark.heavy


class Guarded:
    """A database that asks a user for its password, and the file that holds it."""

    def __init__(self, folder: Path) -> None:
        self.server: PostgresServer = own_server()
        self.url = self.server.new_database()
        self.set_password("first")
        rules = self.server.folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all keeper 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.server.sql(self.url, "SELECT pg_reload_conf()")
        self.file = folder / "pgpass"
        self.write("first")
        url = self.url.replace("fleet@", "keeper@")
        self.learners = Server(f"{url}?passfile={self.file}")

    def set_password(self, password: str) -> None:
        made = "CREATE ROLE keeper LOGIN" if password == "first" else "ALTER ROLE keeper"  # noqa: S105  (of a test)
        self.server.sql(self.url, f"{made} PASSWORD '{password}'")

    def write(self, password: str) -> None:
        self.file.write_text(f"*:*:*:keeper:{password}\n" if password else "")
        self.file.chmod(0o600)

    def ask(self) -> str:
        """The user, by a connection of its own; raises what the learner would."""
        engine = self.learners.engine("public")
        try:
            with engine.connect() as connection:
                return str(connection.exec_driver_sql("SELECT current_user").scalar())
        except SQLAlchemyError as error:
            raise self.learners.translated(error) from error
        finally:
            engine.dispose()

    def close(self) -> None:
        self.server.close()


def test_a_replaced_password_counts_for_the_next_connection_and_is_waited_for(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    try:
        engine = guarded.learners.engine("public")
        with engine.connect() as open_before:
            assert guarded.ask() == "keeper"
            guarded.set_password("second")
            with pytest.raises(DatabaseAway, match="refuses whom it let in before"):
                guarded.ask()
            guarded.write("")
            with pytest.raises(DatabaseAway, match="passfile"):
                guarded.ask()
            assert open_before.exec_driver_sql("SELECT current_user").scalar() == "keeper"
            guarded.write("second")
            assert guarded.ask() == "keeper"
        engine.dispose()
        stranger = Server(guarded.learners.where.replace("pgpass", "nowhere"))
        with pytest.raises(SQLAlchemyError) as caught, stranger.engine("public").connect():
            pass
        assert isinstance(stranger.translated(caught.value), BadLearnerConfig), "it was never let in"
    finally:
        guarded.close()

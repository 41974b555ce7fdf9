"""PostgreSQL server by URL: how it is reached, how long anything there may take, and what its failures mean.

A server that is away comes back, or another one takes its place; whoever needs it waits and tries again. A password
that is wrong stays wrong, unless it was right before: then it was replaced, and the file that holds it follows, which
is read at each connection. The driver is an extra (`fedl2[postgres]`): one machine alone never loads it.
"""

from __future__ import annotations

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.event import listen
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from global_learner.errors import BadLearnerConfig, DatabaseAway, LearnerError

_DRIVER = "postgresql+psycopg"
_CONNECT_SECONDS = 3
_UNANSWERED_MILLISECONDS = 3000
_IDLE_MILLISECONDS = 3000
"""A transaction that says nothing for so long is ended by the server: a frozen learner must not keep its locks."""
_STATEMENT_MILLISECONDS = 30_000
_PASSING = ("08", "53", "57", "58", "40", "55P03", "25P03", "25P04", "25006")
"""SQLSTATEs of a server that is away, starting, ending, overloaded or only read from at the moment."""
_FULL = "53100"
_WRONG = ("28", "3D")
"""Of a name, a password or a database that the server does not know."""
_PASSWORD_WORDS = ("authentication failed", "no password supplied")
_WRONG_WORDS = (*_PASSWORD_WORDS, "does not exist", "no pg_hba.conf entry")
"""The same as a server says it to a connection that begins, of which the driver keeps no code. A server that speaks
another language is waited for, and the log has its words."""


def checked_url(text: str) -> str:
    """A setting that holds the URL of a database.

    Raises:
        ValueError: it is none, or not PostgreSQL's.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise ValueError("must be postgresql://USER@HOST:PORT/DATABASE") from error
    if url.drivername not in {"postgresql", "postgres"} or not url.database:
        raise ValueError("must be postgresql://USER@HOST:PORT/DATABASE; SQLite needs no setting")
    return text


class Server:
    """One database of one server; `where` is its URL for people, without its password.

    Args:
        url: as `checked_url` takes it; all of libpq's parameters may stand in it, such as `?sslmode=verify-full`.
    """

    def __init__(self, url: str) -> None:
        parsed = make_url(url).set(drivername=_DRIVER)
        self._url: URL = parsed
        self.where = parsed.set(drivername="postgresql").render_as_string(hide_password=True)
        self._let_in = False

    def engine(self, schema: str, read_only: bool = False, statement_milliseconds: int | None = None) -> Engine:
        """Connections whose tables are those of one schema.

        Raises:
            BadConfig: the driver is not installed.
        """
        options = {
            "search_path": schema,
            "statement_timeout": statement_milliseconds or _STATEMENT_MILLISECONDS,
            "idle_in_transaction_session_timeout": _IDLE_MILLISECONDS,
            "synchronous_commit": "on",  # what is told is durable, whatever the database's own default
            "default_transaction_read_only": "on" if read_only else "off",
        }
        given = self._url.query.get("options", "")
        own = " ".join(f"-c {name}={value}" for name, value in options.items())
        arguments = {
            "connect_timeout": _CONNECT_SECONDS,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": _UNANSWERED_MILLISECONDS,
            "application_name": "global-learner",
            "options": f"{given if isinstance(given, str) else ' '.join(given)} {own}".strip(),
        }
        try:
            engine = create_engine(
                self._url.difference_update_query(["options"]),
                connect_args=arguments,
                pool_pre_ping=True,
                pool_size=1,
                max_overflow=3,
                pool_timeout=_CONNECT_SECONDS,
            )
        except ModuleNotFoundError as error:
            raise BadLearnerConfig(
                f"setting database: PostgreSQL needs the package {error.name}: pip install 'fedl2[postgres]'"
            ) from error
        listen(engine, "connect", self._on_connected)
        return engine

    def _on_connected(self, *_: object) -> None:
        self._let_in = True

    def make_schema(self, schema: str) -> None:
        """Make a schema if it is not there.

        Raises:
            DatabaseAway, BadConfig: the server cannot be asked now, or does not know whoever asks.
            LearnerError: it refuses.
        """
        engine = self.engine("public")
        try:
            with engine.begin() as connection:
                # Two learners that start at once would both find it missing.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('fedl2'))")
                found = connection.exec_driver_sql(
                    "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (schema,)
                ).first()
                if found is None:
                    connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')
        except SQLAlchemyError as error:
            raise self.translated(error) from error
        finally:
            engine.dispose()

    def translated(self, error: SQLAlchemyError) -> LearnerError:
        """What to raise for an error of the server's."""
        if is_away(error):
            return DatabaseAway(f"database {self.where}: cannot be used now ({_message_of(error)}); come again")
        if self._let_in and _is_password(error):
            return DatabaseAway(
                f"database {self.where}: refuses whom it let in before ({_message_of(error)}); put the new password "
                "into ~/.pgpass (or the passfile of the URL), which is read at each connection"
            )
        if _is_wrong(error):
            return BadLearnerConfig(
                f"setting database: {self.where}: {_message_of(error)}; mend the URL, or the database's users"
            )
        return LearnerError(
            f"database {self.where}: refused ({_message_of(error)}); see its log, and its users' rights"
        )


def sqlstate(error: BaseException) -> str:
    """The code of what PostgreSQL refused; empty where there is none."""
    origin = error.orig if isinstance(error, DBAPIError) else None
    return str(getattr(origin, "sqlstate", None) or "")


def is_full(error: BaseException) -> bool:
    """Whether the server's disk is full."""
    return sqlstate(error) == _FULL


def is_away(error: BaseException) -> bool:
    """Whether a server cannot be asked at the moment; a full disk is another matter."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, SQLAlchemyError) and type(error).__name__ == "TimeoutError"  # of the pool
    code = sqlstate(error)
    if code:
        return code != _FULL and code.startswith(_PASSING)
    origin = error.orig
    if not type(origin).__module__.startswith("psycopg"):
        return False
    return not _is_wrong(error) and (
        error.connection_invalidated or type(origin).__name__ in {"OperationalError", "InterfaceError"}
    )


def _is_wrong(error: SQLAlchemyError) -> bool:
    code = sqlstate(error)
    return code[:2] in _WRONG if code else any(word in _message_of(error) for word in _WRONG_WORDS)


def _is_password(error: SQLAlchemyError) -> bool:
    code = sqlstate(error)
    return code.startswith("28") if code else any(word in _message_of(error) for word in _PASSWORD_WORDS)


def _message_of(error: SQLAlchemyError) -> str:
    message = str(error.orig) if isinstance(error, DBAPIError) else str(error)
    return message.strip().splitlines()[0] if message.strip() else type(error).__name__

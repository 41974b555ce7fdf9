"""What can go wrong in a coordinator alone. `JournalUnusable`: it ends, exit code 1; what it recorded stands."""

from __future__ import annotations

from elastic_runtime.errors import ElasticError


class JournalUnusable(ElasticError):
    """The journal is damaged, of another job or version, or its disk fails. Exit code 1."""

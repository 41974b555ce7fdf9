"""What can go wrong in a coordinator alone. `JournalUnusable`: it ends, exit code 1; what it recorded stands.

`JournalDamaged` is the case that starting it again does not mend: exit code 2, so that nobody does.
"""

from __future__ import annotations

from elastic_runtime.errors import BadInput, ElasticError


class JournalUnusable(ElasticError):
    """The journal's disk fails. Exit code 1."""


class JournalDamaged(JournalUnusable, BadInput):
    """The journal is no journal, damaged, or of another version; it is left as it is. Exit code 2."""

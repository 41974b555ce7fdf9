"""Parts of Python 3.11 for what a job's script imports, which runs with 3.10 as well."""

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """An enumeration of strings that prints its value."""

        __str__ = str.__str__


__all__ = ["StrEnum"]

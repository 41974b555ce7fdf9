"""What of a checkpoint's files is damage, which no other try mends, and what is only in the way.

An older checkpoint is taken in place of a damaged one, and steps are computed again. A file that this process may not
read, or that another version wrote, may be sound: that is for a person to mend, and never passed over.
"""

from __future__ import annotations

import errno
from pathlib import Path

from elastic_runtime.errors import CheckpointDamaged, CheckpointError

_DAMAGE = {errno.ENOENT, errno.EIO}
"""It is gone, or the disk cannot read it back."""


def cannot_read(path: Path, error: OSError) -> CheckpointError:
    """The error to raise where the system refuses to read a checkpoint's file."""
    kind = CheckpointDamaged if error.errno in _DAMAGE else CheckpointError
    return kind(f"{path} cannot be read: {error.strerror}")

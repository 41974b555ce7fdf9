"""Program whose configuration may hold constants: what a benchmark varies, and no operator would.

`python -m benchmarks.with_constants MODULE ARGUMENTS…` runs the module's command.
"""

from __future__ import annotations

import sys
from importlib import import_module

import policy_net.settings


def main() -> None:
    """Run the module's command with the other arguments."""
    policy_net.settings.CONSTANT = ""  # type: ignore[attr-defined]  # marks no field
    module = sys.argv.pop(1)
    import_module(module).main()


if __name__ == "__main__":
    main()

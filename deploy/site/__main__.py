"""Builder of the documentation's site: `python -m deploy.site`, or `make docs`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from deploy.site.inline_code import with_whole_code
from deploy.site.sources import BrokenLink
from deploy.site.staging import stage
from deploy.site.tables import with_headings
from foundation.errors import BAD_INPUT, DONE

_ROOT = Path(__file__).parents[2]
_DEADLINE_SECONDS = 300.0
"""It takes some seconds."""


def main() -> int:
    """Build it, and say where it is.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m deploy.site", description="Build the documentation's site.")
    parser.add_argument("--out", type=Path, default=Path("build/site"), help="the site's folder; what is in it goes")
    out: Path = parser.parse_args().out.resolve()
    try:
        complaints = generate(stage(_ROOT, out.with_name(f"{out.name}-source")), out)
    except BrokenLink as error:
        complaints = [str(error)]
    if complaints:
        print("\n".join(f"docs: {line}" for line in complaints), file=sys.stderr)
        return BAD_INPUT
    print(f"docs: {out / 'index.html'}; the search needs a server:")
    print(f"  {sys.executable} -m http.server --bind 127.0.0.1 --directory {out}")
    return DONE


def generate(configuration: Path, out: Path) -> list[str]:
    """Build what was staged.

    Args:
        configuration: what `stage` gave.
        out: the site's folder; emptied first.

    Returns:
        What is wrong: a link, an anchor or a page of the navigation that is not there, or a page that the navigation
        lacks. Nothing if the site was built.
    """
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # with --quiet it would count no warnings
    command += ["--config-file", str(configuration), "--site-dir", str(out)]
    # What its theme says of MkDocs 2 does not concern us: pyproject.toml asks for one before that.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(  # noqa: S603
        command, check=False, timeout=_DEADLINE_SECONDS, env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).splitlines()
        return [line for line in lines if line and not line.startswith("INFO")]
    for page in out.rglob("*.html"):
        page.write_text(with_whole_code(with_headings(page.read_text(encoding="utf-8"))), encoding="utf-8")
    return []


if __name__ == "__main__":
    sys.exit(main())

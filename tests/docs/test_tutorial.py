"""Every command of the tutorial runs as it stands, in its order, and prints what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_pages import ROOT
from reserved_port import ReservedPort

PAGE = ROOT / "docs" / "guide" / "tutorial.md"
PATIENCE_SECONDS = 240.0
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```|^## ([^\n]+)$", re.MULTILINE | re.DOTALL)
MADE_BEFORE = ("make setup", "source .venv/bin/activate")
"""What made the environment that this test runs in."""
IN_TERMINALS = {"global-learner serve": "learner-started", "cluster-agent run": "decision-made"}
"""What is left running, and the event in its log that the page lets its reader wait for."""
CHANGES = ("policyctl assign",)
"""Commands that are given once; what the others show may come true a little later."""
LINES = re.compile(r"[─-╿]")
NUMBER = re.compile(
    r"\bv\d+(?=,)"  # the newest version
    r"|\d{4}-\d\d-\d\d \d\d:\d\d"
    r"|\b[0-9a-f]{12}\b"
    r"|(?<![\w.])(?:–|[-+]?\d[\d,./]*)(?:%| ?(?:ms|s|min|h|d|B|kB|MB))?(?!\w)"
)


def words(line: str, exact: bool) -> str:
    """A line without its frame; without its numbers too, where they are those of a moment."""
    plain = LINES.sub(" ", line)
    return " ".join((plain if exact else NUMBER.sub("N", plain)).split())


def shows(output: str, shown: str, exact: bool) -> bool:
    """Whether the lines that the page shows are in the output, in their order."""
    lines = iter([words(line, exact) for line in output.splitlines()])
    return all(words(line, exact) in lines for line in shown.splitlines() if words(line, exact))


class Reader:
    """Somebody with three terminals who does what the page says."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self.folder = folder
        self.addresses = addresses
        self.environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.terminals: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.commands: list[str] = []
        self.output = ""

    def save(self, block: str) -> None:
        """A file is named in its first line."""
        for ours, free in self.addresses.items():
            block = block.replace(ours, free)
        (self.folder / block.splitlines()[0].removeprefix("# ")).write_text(block)

    def type(self, line: str) -> None:
        self.commands.append(line)
        program, _, argument = line.partition(" ")
        if line in MADE_BEFORE:
            return
        if program == "cd":
            self.folder = (self.folder / argument).resolve()
        elif program == "export":
            name, _, value = argument.partition("=")
            self.environment[name] = value
        elif line.startswith(tuple(IN_TERMINALS)):
            self.start(line)
        else:
            self.output = self.run(line)

    def start(self, line: str) -> None:
        """In a terminal of its own."""
        log = self.folder / f"{line.split(maxsplit=1)[0]}.log"
        with log.open("wb") as stream:
            started = subprocess.Popen(
                line.split(), cwd=self.folder, env=self.environment, stdout=stream, stderr=stream
            )
        self.terminals.append((started, log))
        (event,) = (event for begin, event in IN_TERMINALS.items() if line.startswith(begin))
        assert f"`{event}`" in PAGE.read_text(encoding="utf-8")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while event not in log.read_text():
            self.look_after_terminals()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def run(self, line: str) -> str:
        """What the command prints."""
        done = subprocess.run(
            line.split(),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def compare(self, shown: str) -> None:
        """The output with what the page shows of it."""
        line = self.commands[-1]
        exact = line.startswith("policy-net")  # the same seed, the same result
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not shows(self.output, shown, exact):
            assert not exact, self.output
            assert not line.startswith(CHANGES), self.output
            assert time.monotonic() < deadline, f"{line} never showed\n{shown}\nbut\n{self.output}"
            self.look_after_terminals()
            time.sleep(0.5)
            self.output = self.run(line)

    def look_after_terminals(self) -> None:
        for program, log in self.terminals:
            assert program.poll() is None, log.read_text()

    def end_terminals(self) -> None:
        """Ctrl-C, in the agent's first."""
        self.look_after_terminals()
        while self.terminals:
            program, log = self.terminals.pop()
            program.send_signal(signal.SIGINT)
            assert program.wait(PATIENCE_SECONDS) == 0, log.read_text()

    def close(self) -> None:
        for program, _ in self.terminals:
            program.kill()
            program.wait(PATIENCE_SECONDS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    service, page = ReservedPort(), ReservedPort()
    addresses = {"127.0.0.1:7070": f"127.0.0.1:{service.port}", "127.0.0.1:7071": f"127.0.0.1:{page.port}"}
    somebody = Reader(tmp_path, addresses)
    yield somebody
    somebody.close()
    service.close()
    page.close()


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_newcomer_gets_through_it(reader: Reader, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for language, block, heading in BLOCK.findall(text):
        if heading == "End it":
            with urllib.request.urlopen(f"http://{reader.addresses['127.0.0.1:7071']}/", timeout=60) as answer:
                assert b"north" in answer.read()
            assert "<html" in (reader.folder / "report" / "index.html").read_text(encoding="utf-8")
            reader.end_terminals()
        if language == "sh":
            for line in block.splitlines():
                reader.type(line)
        elif language == "yaml":
            reader.save(block)
        elif block:
            reader.compare(block)
    assert "policyctl assign v2 --cluster north" in reader.commands
    assert reader.folder == tmp_path
    assert list((tmp_path / "build").iterdir()) == [], "the page leaves nothing behind"


def test_what_the_page_shows_is_compared_word_by_word() -> None:
    output = "┃ cluster │ heard ┃\n│ north │ 12 s ago │ v2 │ v2 (held) │\n│ south │ – │ v1 │ v1 │\n"
    assert shows(output, " north   0 s ago   v2   v2 (held)", exact=False)
    assert not shows(output, " north   0 s ago   v1   v2 (held)", exact=False), "versions that act are no numbers"
    assert not shows(output, " south  0 s  v1  v1\n north  0 s ago  v2  v2 (held)", exact=False), "the order counts"
    assert shows("a 12.5 h", "a  12.5 h", exact=True)
    assert not shows("a 12.5 h", "a 12.6 h", exact=True)

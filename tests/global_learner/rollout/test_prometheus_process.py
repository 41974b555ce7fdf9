"""Questions to a Prometheus server by the process that asks them: a number, or one line that says why there is none."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_stand_in import Behave, StandIn, says, stand_in, vector
from reserved_port import ReservedPort

from global_learner.scores.replay_process import NoAnswer, process_output

COMMAND = (sys.executable, "-m", "global_learner.rollout.prometheus_process")
DEADLINE_SECONDS = 90.0


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as serving:
        yield serving


async def asked(address: str, *texts: str, seconds: float = DEADLINE_SECONDS, **files: str) -> list[float] | str:
    question = {"address": address, "queries": texts or ("up",), "token_file": "", "ca_file": "",
                "deadline_seconds": seconds, "parent": os.getpid(), **files}  # fmt: skip
    out = await process_output(COMMAND, seconds, json.dumps(question).encode())
    if isinstance(out, NoAnswer):
        assert "\n" not in out.reason
        assert len(out.reason) <= 400
        return out.reason
    numbers: list[float] = json.loads(out)
    return numbers


async def test_numbers_are_asked_for_in_turn_below_the_servers_path(server: StandIn, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n", encoding="ascii")
    scalar = json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1.8e9, "-7"]}}).encode()
    server.behave = lambda handler, text: says(scalar if text == "other" else vector("0.02"))(handler, text)
    assert await asked(f"{server.address}/deep", 'sum(up{c=~"a|b"})', "other", token_file=str(token)) == [0.02, -7.0]
    assert server.texts == ['sum(up{c=~"a|b"})', "other"]
    assert server.paths == ["/deep/api/v1/query"] * 2
    assert server.tokens == ["Bearer s3cret"] * 2


async def test_a_replaced_token_is_sent_with_the_next_question(server: StandIn, tmp_path: Path) -> None:
    token = tmp_path / "token"
    server.behave = says(vector("1"))
    for content in ("first", "", "second"):
        token.write_text(content, encoding="ascii")
        answer = await asked(server.address, token_file=str(token))
        assert answer == [1.0] if content else "holds no token" in answer
    assert server.tokens == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (says(vector("NaN")), "gives nan"),
        (says(vector("+Inf")), "gives inf"),
        (says(vector("1e999")), "gives inf"),
        (says(vector()), "no series"),
        (says(vector("1", "2", "3")), "3 series in place of one number"),
        (says(vector("1", warnings=["a part of the data\nis missing"])), "it warns: a part of the data is missing"),
        (says(vector("not a number")), "none of a Prometheus server"),
        (says(b"<html>welcome</html>"), "none of a Prometheus server: b'<html>welcome"),
        (says(b"\xff\x00" * 1000), "none of a Prometheus server"),
        (says(b"[" * 100_000), "none of a Prometheus server"),
        (says(b'{"status": "success", "data": {"resultType": "vector", "result": [5]}}'), "none of a Prometheus"),
        (says(b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'), "gives a matrix"),
        (says(b'{"status": "error", "errorType": "timeout", "error": "too slow"}'), "timeout: too slow"),
        (says(b'{"status": "error", "errorType": "bad_data", "error": "parse error"}', 400), "400: bad_data: parse"),
        (says(b"", 503), "HTTP 503"),
        (says(vector("0.02"), 302, Location="http://127.0.0.1:1/"), "HTTP 302: it redirects to elsewhere"),
        (says(vector("0.02"), 307, Location="/elsewhere"), "HTTP 307: it redirects to elsewhere"),
        (says(b" " * 10_000_000), "longer than 262144 bytes"),
        (lambda handler, _: handler.wfile.write(b"SSH-2.0-OpenSSH_9\r\n\r\n"), "BadStatusLine"),
        (lambda handler, _: handler.connection.close(), "Remote end closed"),
    ],
)  # fmt: skip
async def test_whatever_is_no_number_is_one_line(server: StandIn, behave: Behave, said: str) -> None:
    server.behave = behave
    found = await asked(server.address)
    assert isinstance(found, str)
    assert said in found
    assert len(server.texts) == 1  # a redirect is not followed


@pytest.mark.parametrize("behaviour", ["never", "a_byte_at_a_time"])
async def test_the_deadline_is_one_for_all_of_it(server: StandIn, behaviour: str) -> None:
    server.behave = getattr(server, behaviour)
    found = await asked(server.address, seconds=3.0)
    assert isinstance(found, str)
    assert "longer than 3 s" in found or "SIGALRM" in found or "timed out" in found


async def test_a_server_that_is_not_there_and_files_that_are_not(server: StandIn, tmp_path: Path) -> None:
    with closing(ReservedPort()) as reserved:
        refused = await asked(f"http://{reserved.address}")
    assert refused == "ConnectionRefusedError: Connection refused"
    no_token = await asked(server.address, token_file=str(tmp_path / "none"))
    assert isinstance(no_token, str)
    assert "the token cannot be read" in no_token
    no_tls = await asked(server.address.replace("http", "https"))
    assert isinstance(no_tls, str)
    assert "SSL" in no_tls
    assert server.texts == []


def test_it_ends_with_whoever_started_it(server: StandIn, tmp_path: Path) -> None:
    """The one who asks is killed while its question is open."""
    if sys.platform != "linux":
        pytest.skip("no other system ends a process with its parent")
    server.behave = server.never
    question = {"address": server.address, "queries": ["up"], "token_file": "", "ca_file": "", "deadline_seconds": 600}
    asker = f"""
import json, os, subprocess, sys
question = json.dumps({question!r} | {{"parent": os.getpid()}})
process = subprocess.Popen({list(COMMAND)!r}, stdin=subprocess.PIPE, text=True)
process.stdin.write(question)
process.stdin.close()
print(process.pid, flush=True)
process.wait()
"""
    with subprocess.Popen([sys.executable, "-c", asker], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not server.texts:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        started.kill()
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.heavy
async def test_the_real_server_gives_numbers_of_clusters(tmp_path: Path) -> None:
    """Prometheus itself, which scrapes itself under a cluster's name."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus is installed here")
    with closing(ReservedPort()) as reserved:
        address = reserved.address
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: own\n    static_configs:\n"
            f"      - {{targets: ['{address}'], labels: {{cluster: north.eu}}}}\n",
            encoding="utf-8",
        )
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                   f"--web.listen-address={address}"]  # fmt: skip
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            here, nowhere = 'sum(up{cluster=~"north[.]eu|south"})', 'sum(up{cluster=~"northxeu"})'
            while (found := await asked(f"http://{address}", here, "vector(0.5)")) != [1.0, 0.5]:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline, found
            assert str(await asked(f"http://{address}", nowhere)).startswith("no series")
            assert "parse error" in str(await asked(f"http://{address}", "sum("))
            assert "series in place of one number" in str(await asked(f"http://{address}", '{cluster="north.eu"}'))
            assert "gives a matrix" in str(await asked(f"http://{address}", "up[5m]"))
            assert "gives a string" in str(await asked(f"http://{address}", '"word"'))
            assert "gives nan" in str(await asked(f"http://{address}", "vector(0) / 0"))
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)

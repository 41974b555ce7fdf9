"""The live page of a real learner in a real browser: it follows the fleet, and says when it cannot."""

from pathlib import Path
from typing import Any

import pytest
from browser import chromium, complaints, look, until
from learner_process import LearnerProcess
from report_makers import EVIL
from reserved_port import ReservedPort
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc

DEADLINE_SECONDS = 60.0


def own_complaints(browser: WebDriver) -> list[dict[str, Any]]:
    """All but that the learner was slow to answer, which a busy machine may make it."""
    slow = ("report.json", "the learner answered with 503", "TimeoutError")
    return [entry for entry in complaints(browser) if not any(words in entry["message"] for words in slow)]


def beat(learner: LearnerProcess, running: int) -> None:
    with learner.channel() as channel:
        stub = rpc.FleetStub(channel)
        reply = stub.Register(pb.RegisterRequest(cluster="north"), timeout=DEADLINE_SECONDS, wait_for_ready=True)
        job = pb.JobTimeline(
            number=1, job_type=EVIL, held=[pb.JobTimeline.Held(seconds=0, workers=2, ps=1)], seconds=600.0
        )
        reported = pb.ClusterStatus(
            jobs_running=running, decisions=9, guard_interventions={"deadline": 2}, job_timelines=[job]
        )
        request = pb.HeartbeatRequest(cluster="north", incarnation=reply.incarnation, status=reported)
        stub.Heartbeat(request, timeout=DEADLINE_SECONDS)


@pytest.mark.heavy
def test_the_live_page_follows_the_fleet_and_says_when_it_lost_the_learner(tmp_path: Path) -> None:
    http = ReservedPort()
    learner = LearnerProcess(tmp_path, telemetry={"http_listen": http.address})
    learner.start()
    try:
        with chromium() as browser:
            look(browser, 1400)
            browser.get(f"http://127.0.0.1:{learner.http_port}/")
            until(browser, "h1", "No cluster has joined this fleet yet")
            until(browser, "#status", "live")
            browser.execute_script("window.same = true")
            beat(learner, running=3)
            until(browser, "#fleet-rows", "north")
            until(browser, "#guard", "2 interventions in 9 decisions")
            assert EVIL in browser.find_element(By.ID, "job-part-finding").text
            section = browser.find_element(By.ID, "guard")
            section.find_element(By.TAG_NAME, "summary").click()
            beat(learner, running=5)
            until(browser, "#fleet-rows tr td:nth-of-type(3)", "5")
            assert section.find_element(By.TAG_NAME, "tbody").is_displayed(), "what was opened stays open"
            assert own_complaints(browser) == []
            learner.kill()
            until(browser, "#status", "connection lost")
            until(browser, "#lost", "What stands here is as of")
            assert "north" in browser.find_element(By.ID, "fleet-rows").text
            learner.start()
            until(browser, "#status", "live")
            assert not browser.find_element(By.ID, "lost").is_displayed()
            assert browser.execute_script("return window.same"), "the page was never loaded again"
    finally:
        learner.close()
        http.close()

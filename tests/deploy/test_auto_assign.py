"""Nothing new acts by itself, but in the demo and in simulations."""

from pathlib import Path

import pytest

from global_learner.settings import PublishSettings

ROOT = Path(__file__).parents[2]
ALLOWED = ("deploy/demonstration/", "benchmarks/", "tests/")
"""Where every new version may act at once: nobody's jobs wait there."""


def test_new_versions_do_not_act_by_themselves_unless_that_is_asked_for() -> None:
    assert PublishSettings().auto_assign is False


@pytest.mark.parametrize("kind", ["*.py", "*.yaml", "*.yml", "*.toml"])
def test_only_the_demo_and_simulations_ask_for_it(kind: str) -> None:
    asking = [
        path.relative_to(ROOT).as_posix()
        for folder in ("deploy", "benchmarks", "cluster_agent", "global_learner", "policy_net")
        for path in (ROOT / folder).rglob(kind)
        if '"auto_assign": True' in (text := path.read_text(encoding="utf-8")) or "auto_assign: true" in text
    ]
    assert [name for name in asking if not name.startswith(ALLOWED)] == []
    if kind == "*.py":
        assert "deploy/demonstration/configs.py" in asking, "the search finds nothing any more"

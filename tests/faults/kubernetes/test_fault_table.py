"""The table of faults is complete: each that was found on a real cluster has a name and a place of injection."""

import ast
from pathlib import Path

import pytest
from fault_table import ELSEWHERE, EVIDENCE, NEVER, STRIKES

TESTS = Path(__file__).parents[2]


def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_fault_that_was_found_is_injected_somewhere_or_cannot_happen() -> None:
    named = {*STRIKES, *ELSEWHERE, *NEVER}
    assert len(named) == len(STRIKES) + len(ELSEWHERE) + len(NEVER), "a name is one fault's"
    assert set(EVIDENCE.values()) <= named


@pytest.mark.parametrize("name", [*ELSEWHERE, *NEVER])
def test_the_tests_that_are_named_are_there(name: str) -> None:
    tests = ELSEWHERE[name].tests if name in ELSEWHERE else (NEVER[name].test,)
    for each in tests:
        file, _, function = each.partition("::")
        assert function in functions(file), each


@pytest.mark.parametrize(
    "file", ["test_training_writes.py", "test_deletion_writes.py", "test_target_writes.py", "test_lease_writes.py"]
)
def test_all_faults_of_a_write_are_injected_at_every_kind_of_loop(file: str) -> None:
    text = (TESTS / "faults" / "kubernetes" / file).read_text(encoding="utf-8")
    assert "STRIKES" in text

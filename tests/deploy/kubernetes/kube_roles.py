"""Rights as the files of roles grant them, which are also what the test API server lets an agent do."""

from __future__ import annotations

import yaml
from rendered import DEPLOY, MODES


def granted_by_files(mode: str) -> set[tuple[str, ...]]:
    """All rights of a mode, or of training with `kueue`: where (empty: everywhere), group, resource, name, verb."""
    folders = {"advice": "base", **{name: f"overlays/{name}" for name in ("auto", "training", "kueue")}}
    found = set()
    for each in (*MODES, "kueue") if mode == "kueue" else MODES[: MODES.index(mode) + 1]:
        path = DEPLOY / "kustomize" / folders[each] / f"{each}-role.yaml"
        for role in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            found |= {
                (role["metadata"].get("namespace", ""), group, resource, name, verb)
                for rule in role["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for name in rule.get("resourceNames", [""])
                for verb in rule["verbs"]
            }
    return found

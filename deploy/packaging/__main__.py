"""Writer of the dashboards, and of what the chart has copies of: `python -m deploy.packaging`, or `make chart`.

Helm reads nothing outside of a chart's folder. A test compares every copy with its source.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from deploy.packaging.dashboards import dashboards
from deploy.packaging.settings_schema import settings_definitions

DEPLOY = Path(__file__).parents[1]


def chart_files() -> dict[str, str]:
    """Contents of the chart's copies, by their paths in its folder; whatever else lies in `files` does not belong."""
    kustomize = DEPLOY / "kustomize"
    made = {f"files/dashboards/{name}": text for name, text in dashboards().items()}
    sources = {
        "crds": [path for path in (DEPLOY / "crds").glob("*.yaml") if path.name != "kustomization.yaml"],
        "roles": [*kustomize.glob("base/*-role.yaml"), *kustomize.glob("overlays/*/*-role.yaml")],
        "alerts": list((DEPLOY / "alerts").glob("*.rules.yaml")),
    }
    return made | {
        f"files/{folder}/{path.name}": path.read_text(encoding="utf-8")
        for folder, paths in sources.items()
        for path in sorted(paths)
    }


def values_schema(present: str) -> str:
    """The chart's schema of values, with the agent's settings as they are now."""
    schema = json.loads(present)
    schema["$defs"] = settings_definitions()
    return json.dumps(schema, indent=2) + "\n"


def main() -> None:
    """Write everything."""
    chart = DEPLOY / "charts" / "fedl2"
    for name, text in dashboards().items():
        (DEPLOY / "dashboards" / name).write_text(text, encoding="utf-8")
    shutil.rmtree(chart / "files", ignore_errors=True)
    schema = chart / "values.schema.json"
    contents = chart_files() | {schema.name: values_schema(schema.read_text(encoding="utf-8"))}
    for name, text in contents.items():
        (chart / name).parent.mkdir(parents=True, exist_ok=True)
        (chart / name).write_text(text, encoding="utf-8")
        print(f"written: deploy/charts/fedl2/{name}")


if __name__ == "__main__":
    main()

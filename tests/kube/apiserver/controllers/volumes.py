"""Volumes of pods as folders of this machine.

An emptyDir lives as long as its pod, a claim as long as the cluster; Secrets and ConfigMaps are written when the pod
starts, and not again when they change. The text of a ConfigMap is rewritten like the words of the process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apiserver.controllers.environment import data_of, field_of
from apiserver.controllers.kubelet import CannotStart
from apiserver.controllers.stepping import pair_of
from apiserver.store import Refused, Store

Json = dict[str, Any]


class Volumes:
    """Folders below one.

    Args:
        root: of the cluster.
    """

    def __init__(self, root: Path, store: Store) -> None:
        self._root, self._store = root, store

    def pod_folder(self, uid: str) -> Path:
        """A pod's own, where its process starts."""
        found = self._root / "pods" / uid
        found.mkdir(parents=True, exist_ok=True)
        return found

    def claim_folder(self, namespace: str, claim: str) -> Path:
        """A persistent volume claim's, which all pods with it share."""
        found = self._root / "claims" / namespace / claim
        found.mkdir(parents=True, exist_ok=True)
        return found

    def folders(self, pod: Json, container: Json) -> dict[str, Path]:
        """Folder of each path where something is mounted; what is written into them comes later.

        Raises:
            CannotStart: a claim is not there, or the volume is of a kind that is not known here.
        """
        volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
        found = {}
        for mount in container.get("volumeMounts") or ():
            volume = volumes.get(mount["name"])
            if volume is None:
                raise CannotStart(
                    "CreateContainerConfigError", f"volume {mount['name']} is not among the pod's volumes"
                )
            folder = self._folder(pod, volume)
            if mount.get("subPath"):
                folder = folder / str(mount["subPath"])
                if not _is_written(volume):
                    folder.mkdir(parents=True, exist_ok=True)
            found[mount["mountPath"]] = folder
        return found

    def fill(self, pod: Json, address: str, rewrite: Callable[[str], str]) -> None:
        """Write Secrets, ConfigMaps and fields of the pod into their folders.

        Raises:
            CannotStart: something is missing.
        """
        for volume in pod["spec"].get("volumes") or ():
            sources = (volume.get("projected") or {}).get("sources") or ([volume] if _is_written(volume) else ())
            for source in sources:
                self._write(self._folder(pod, volume), source, pod, address, rewrite)

    def forget(self, uid: str) -> None:
        """Take a pod's own folders away."""
        shutil.rmtree(self._root / "pods" / uid, ignore_errors=True)

    def _folder(self, pod: Json, volume: Json) -> Path:
        namespace, _ = pair_of(pod)
        if "hostPath" in volume:
            return Path(str(volume["hostPath"]["path"]))
        if "persistentVolumeClaim" in volume:
            claim = str(volume["persistentVolumeClaim"]["claimName"])
            try:
                self._store.get("persistentvolumeclaims", namespace, claim)
            except Refused as refused:
                raise CannotStart("CreateContainerConfigError", refused.status["message"]) from refused
            return self.claim_folder(namespace, claim)
        if "emptyDir" not in volume and not _is_written(volume):
            kinds = ", ".join(sorted(set(volume) - {"name"}))
            raise CannotStart("CreateContainerConfigError", f"volume {volume['name']}: {kinds} is not known here")
        found = self.pod_folder(pod["metadata"]["uid"]) / "volumes" / str(volume["name"])
        found.mkdir(parents=True, exist_ok=True)
        return found

    def _write(self, folder: Path, source: Json, pod: Json, address: str, rewrite: Callable[[str], str]) -> None:
        namespace, _ = pair_of(pod)
        if "downwardAPI" in source:
            for item in source["downwardAPI"].get("items") or ():
                path = folder / item["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(field_of(pod, item["fieldRef"]["fieldPath"], address), encoding="utf-8")
        for kind, table in (("secret", "secrets"), ("configMap", "configmaps")):
            if kind not in source:
                continue
            reference = {"name": source[kind].get("secretName") or source[kind].get("name", ""), **source[kind]}
            data = data_of(self._store, table, namespace, reference)
            items = source[kind].get("items") or [{"key": name, "path": name} for name in data]
            for item in items:
                if item["key"] not in data:
                    text = f"{table} {namespace}/{reference['name']} has no key {item['key']}"
                    raise CannotStart("CreateContainerConfigError", text)
                content = data[item["key"]]
                if kind == "configMap":
                    content = _rewritten(content, rewrite)
                path = folder / item["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


def _is_written(volume: Json) -> bool:
    return any(kind in volume for kind in ("secret", "configMap", "downwardAPI", "projected"))


def _rewritten(content: bytes, rewrite: Callable[[str], str]) -> bytes:
    try:
        return rewrite(content.decode()).encode()
    except UnicodeDecodeError:
        return content  # binary data

"""Power lost at any moment: whatever the disk kept of what was not synced, nothing acknowledged is lost.

A run of the log's writer, its commit record, snapshots and receipts is recorded at the calls that change files. Then,
for every moment of it, disks are made up as ALICE and CrashMonkey do: what was synced is there, and of the writes since
then any subset, each of them perhaps in part; names that were not synced are old or new. Each is read as a start does.
Databases are not part of it: their writes are SQLite's own.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from learner_makers import SPEC, applied, policy

from global_learner.aggregation.base import ImmediateAggregator
from global_learner.storage.commits import LOG, Commits
from global_learner.storage.log_writer import LogEnd, LogWriter
from global_learner.storage.receipts import audit, check_receipts, cut_log, read_receipts, read_removed
from global_learner.storage.snapshot import AdamState, read_newest_snapshot, write_snapshot
from global_learner.storage.update_log import read_log
from global_learner.updates.head import Head
from global_learner.updates.ledger import Ledger
from policy_net.learning.adam import AdamConstants

STEPS = 60
DISKS_A_MOMENT = 3
SECTOR = 512
FOLDERS = ("log", "snapshots", "receipts", ".")


@dataclass
class Node:
    """A file's content: what is synced, and the writes since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut here

    def now(self, kept: list[tuple[int, bytes | None]]) -> bytearray:
        data = bytearray(self.durable)
        for at, content in kept:
            if content is None:
                data = data[:at].ljust(at, b"\0")
            else:
                data = data.ljust(at + len(content), b"\0")
                data[at : at + len(content)] = content
        return data


@dataclass
class Disk:
    """Files by their inode, names as they are synced and the changes since; each change is whole or not at all."""

    nodes: dict[int, Node] = field(default_factory=dict)
    names: dict[str, dict[str, Node]] = field(default_factory=lambda: {folder: {} for folder in FOLDERS})
    changes: dict[str, list[list[tuple[str, Node | None]]]] = field(default_factory=lambda: {f: [] for f in FOLDERS})

    def sync_folder(self, folder: str) -> None:
        self.names[folder] = self.named(folder, len(self.changes[folder]))
        self.changes[folder].clear()

    def named(self, folder: str, changes: int) -> dict[str, Node]:
        names = dict(self.names[folder])
        for change in self.changes[folder][:changes]:
            for name, node in change:
                if node is None:
                    names.pop(name, None)
                else:
                    names[name] = node
        return names

    def after_power_loss(self, target: Path, rng: random.Random) -> None:
        for folder in FOLDERS:
            (target / folder).mkdir(parents=True, exist_ok=True)
            # A journal keeps the order of names.
            names = self.named(folder, rng.randint(0, len(self.changes[folder])))
            for name, node in names.items():
                kept: list[tuple[int, bytes | None]] = []
                for at, content in node.pending:
                    fate = rng.random()
                    if content is None or fate < 0.4:
                        kept += [(at, content)] if fate < 0.7 else []
                    elif fate < 0.7:  # some of its sectors, in no order
                        sectors = [(at + s, content[s : s + SECTOR]) for s in range(0, len(content), SECTOR)]
                        kept += [sector for sector in sectors if rng.random() < 0.5]
                (target / folder / name).write_bytes(node.now(kept))


def at(path: str | os.PathLike[str], folder: int | None) -> Path:
    """The whole path of a name that may be below an open folder."""
    return Path(path) if folder is None else Path(f"/proc/self/fd/{folder}").readlink() / path


class Recorder:
    """Notes what is done to the files below a folder; `moments` holds a copy of the disk at each, and what was told."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.disk, self.acknowledged = root, Disk(), 0
        self.moments: list[tuple[Disk, int]] = []
        names = ("open", "pwrite", "pwritev", "fsync", "truncate", "rename", "replace", "unlink")
        self._real = {name: getattr(os, name) for name in names}
        for name in names:
            monkeypatch.setattr(os, name, getattr(self, name))

    def moment(self) -> None:
        self.moments.append((copy.deepcopy(self.disk), self.acknowledged))

    def _place(self, there: Path) -> tuple[str, str] | None:
        if self.root not in there.parents:
            return None
        folder = str(there.parent.relative_to(self.root))
        return (folder, there.name) if folder in FOLDERS else None

    def open(self, path, flags, mode=0o777, *, dir_fd=None):
        there = at(path, dir_fd)
        existed = there.exists()
        descriptor = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        place = self._place(there)
        if place is not None and flags & os.O_CREAT and not existed:
            number = os.fstat(descriptor).st_ino
            self.disk.nodes[number] = Node()
            self.disk.changes[place[0]].append([(place[1], self.disk.nodes[number])])
        return descriptor

    def _node(self, descriptor: int) -> Node | None:
        return self.disk.nodes.get(os.fstat(descriptor).st_ino)

    def pwritev(self, descriptor, buffers, offset):
        written = self._real["pwritev"](descriptor, buffers, offset)
        node = self._node(descriptor)
        if node is not None:
            node.pending.append((offset, b"".join(bytes(buffer) for buffer in buffers)[:written]))
            self.moment()
        return written

    def pwrite(self, descriptor, data, offset):
        return self.pwritev(descriptor, [data], offset)

    def fsync(self, descriptor):
        self._real["fsync"](descriptor)
        there = Path(f"/proc/self/fd/{descriptor}").readlink()
        if there.is_dir():
            folder = str(there.relative_to(self.root)) if there == self.root or self.root in there.parents else ""
            if folder in FOLDERS:
                self.disk.sync_folder(folder)
        elif (node := self._node(descriptor)) is not None:
            node.durable, node.pending = node.now(node.pending), []
        self.moment()

    def truncate(self, path, length):
        self._real["truncate"](path, length)
        number = path if isinstance(path, int) else None
        node = self._node(path) if number is not None else self.disk.nodes.get(Path(path).stat().st_ino)
        if node is not None:
            node.pending.append((length, None))

    def rename(self, source, target, *, src_dir_fd=None, dst_dir_fd=None):
        there = at(source, src_dir_fd)
        old, new, number = self._place(there), self._place(at(target, dst_dir_fd)), there.stat().st_ino
        self._real["rename"](source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if old is not None and new is not None:
            self.disk.changes[old[0]].append([(old[1], None), (new[1], self.disk.nodes[number])])
            self.moment()

    replace = rename

    def unlink(self, path, *, dir_fd=None):
        place = self._place(at(path, dir_fd))
        self._real["unlink"](path, dir_fd=dir_fd)
        if place is not None:
            self.disk.changes[place[0]].append([(place[1], None)])


async def life(root: Path, recorder: Recorder, rng: random.Random) -> None:
    commits = Commits(root)
    end = LogEnd(root / "log", SPEC.digest, 0, 0, commits)
    log = LogWriter(end, lambda error: None, sync=os.fsync)
    head = Head(AdamState.start(policy().weights), Ledger(64), ImmediateAggregator(AdamConstants()), 0.0)
    log.start()
    for step in range(1, STEPS + 1):
        record = applied(step)
        log.append(record)
        head.apply(record)
        if rng.random() < 0.4:
            await log.durable(step)
            recorder.acknowledged = step
        if step % 10 == 0:
            log.new_segment(step + 1)
            snapshot = head.snapshot(SPEC.digest, {})
            await log.durable(step)
            recorder.acknowledged = step
            write_snapshot(root / "snapshots", snapshot)
            cut_log(root / "log", root / "receipts", step, give_up=log.files.cut, max_receipts_bytes=4000)
    await log.close()
    commits.close()


async def test_nothing_acknowledged_is_lost_whatever_the_disk_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "state"
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    rng = random.Random(8)
    with monkeypatch.context() as patched:
        recorder = Recorder(root, patched)
        await life(root, recorder, rng)
    assert recorder.acknowledged == STEPS
    behind = 0
    for number, (disk, acknowledged) in enumerate(recorder.moments):
        for variant in range(DISKS_A_MOMENT):
            target = tmp_path / f"disk-{number}-{variant}"
            disk.after_power_loss(target, rng)
            snapshot = read_newest_snapshot(target / "snapshots", SPEC.digest)
            last = snapshot.state.step if snapshot is not None else 0
            for update in read_log(target / "log", SPEC.digest):
                if update.step > last:
                    assert update.step == last + 1
                    last += 1
            assert last >= acknowledged, (number, variant)
            assert Commits(target).count(LOG) <= last, "the commit record is ahead of what was synced"
            behind += Commits(target).count(LOG) < last
            through = check_receipts(target / "receipts")
            assert through <= last
            shutil.rmtree(target)
    print({"moments": len(recorder.moments), "disks": DISKS_A_MOMENT * len(recorder.moments), "older commits": behind})
    assert sum(audit(read_receipts(root, SPEC.digest), read_removed(root / "receipts")).values()) == STEPS

import os
from pathlib import Path

import pytest
from learner_makers import SPEC, applied

from foundation.files import write_at
from global_learner.storage.log_writer import SPARES, LogEnd, LogWriter, SegmentFiles
from global_learner.storage.update_log import first_step, read_log, segment_header, segments


def header(step: int) -> bytes:
    return segment_header(SPEC.digest, step)


def test_a_cut_file_is_written_over_and_keeps_its_place_on_the_disk(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    first = files.open(1, header(1), os.fsync)
    os.write(first, b"x" * 10_000)
    files.grew(1, 10_000)
    os.close(first)
    node = segments(tmp_path)[0].stat().st_ino
    files.cut(segments(tmp_path)[0])
    assert segments(tmp_path) == []
    assert files.size_bytes == 10_000
    os.close(files.open(7, header(7), os.fsync))
    (segment,) = segments(tmp_path)
    assert (first_step(segment), segment.stat().st_ino) == (7, node)
    assert files.size_bytes == 10_000
    assert list(read_log(tmp_path, SPEC.digest)) == []


def test_few_spares_are_kept_and_none_of_an_earlier_life(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    for step in range(1, 7):
        os.close(files.open(step, header(step), os.fsync))
    for path in segments(tmp_path):
        files.cut(path)
    assert len(list(tmp_path.iterdir())) == SPARES
    assert files.size_bytes == SPARES * len(header(1))
    SegmentFiles(tmp_path)
    assert list(tmp_path.iterdir()) == []
    files.remove_spares()
    assert files.size_bytes == 0


def test_a_file_that_cannot_be_begun_leaves_nothing(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)

    def failing(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        files.open(1, header(1), failing)
    assert list(tmp_path.iterdir()) == []
    assert files.size_bytes == 0


async def test_a_log_that_is_cut_as_it_goes_takes_a_few_segments_for_ever(tmp_path: Path) -> None:
    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 0), [].append)
    log.start()
    most = 0
    for step in range(1, 1001):
        log.append(applied(step))
        if step % 10 == 0:
            await log.durable(step)
            log.new_segment(step + 1)
            for path in segments(tmp_path)[:-1]:
                log.files.cut(path)
            most = max(most, log.size_bytes, sum(path.stat().st_size for path in tmp_path.iterdir()))
    await log.close()
    one = 10 * (4 * SPEC.parameter_count + 100) + len(header(1))
    assert most <= (SPARES + 2) * one
    assert [record.step for record in read_log(tmp_path, SPEC.digest)] == list(
        range(first_step(segments(tmp_path)[0]), 1001)
    )


def test_buffers_are_written_whole_however_few_bytes_a_call_takes(tmp_path: Path, monkeypatch) -> None:
    whole = [bytes([number]) * (number % 5) for number in range(1, 200)]
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda descriptor, buffers: real(descriptor, [b"".join(buffers)[:7]]))
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    end = write_at(descriptor, 3, whole)
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes()[3:] == b"".join(whole)
    assert end == 3 + len(b"".join(whole))

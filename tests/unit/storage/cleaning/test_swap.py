"""Replacing segments by cleaned ones: after any failure the log opens, and the newest values are there."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.clean_stand import (
    NOW_MS,
    SETTINGS,
    batches_in,
    clean,
    contents,
    end_transaction,
    job_for,
    new_log,
    put,
    put_in_place,
    reopen,
    write_cleaned,
)

from ottla.base.errors import KafkaError
from ottla.protocol.batches import read_batch_header, read_records
from ottla.storage import files
from ottla.storage.cleaning.job import CleanedGroup
from ottla.storage.cleaning.swap import SegmentSwap, swap_blocking
from ottla.storage.log import Log

CHANGING = ("write_at", "truncate", "rename", "link", "unlink", "open_file", "sync")


class CrashError(BaseException):
    """The process is gone."""


def filled(directory: Path) -> Log:
    """Several segments with much that is superseded, and an aborted transaction over two of them."""
    log = new_log(directory)
    for number in range(16):
        put(log, (b"%d" % (number % 7), b"%d" % number), (b"%d" % (number % 3), b"%d" % number))
        if number == 5:
            put(log, (b"0", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=1)
        if number == 9:
            end_transaction(log, 1, is_abort=True)
        if number % 4 == 3:
            log.roll(NOW_MS)
    put(log, (b"active", b"1"))
    log.flush()
    return log


def newest_values(log: Log) -> dict[bytes | None, tuple[int, bytes | None]]:
    """The newest value of each key, as a read_committed consumer sees it."""
    aborted = {t.producer_id: (t.first_offset, t.last_offset) for t in log.aborted_transactions(0, log.end_offset)}
    newest: dict[bytes | None, tuple[int, bytes | None]] = {}
    for batch in batches_in(log):
        header = read_batch_header(batch)
        first, last = aborted.get(header.producer_id, (-1, -1))
        if header.is_transactional and first <= header.base_offset <= last:
            continue
        newest.update({key: (offset, value) for offset, key, value in contents_of(batch)})
    return newest


def contents_of(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    if read_batch_header(batch).is_control:
        return []
    return [(record.offset, record.key, record.value) for record in read_records(batch)]


def swaps_for(log: Log, groups: list[CleanedGroup]) -> list[SegmentSwap]:
    by_base = {segment.base_offset: segment for segment in log.segments}
    return [
        SegmentSwap(log, log.directory, [by_base[base] for base in group.base_offsets], group)
        for group in groups
        if not group.is_unchanged
    ]


def test_a_crash_before_any_operation_leaves_the_newest_record_of_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = 0
    is_done = False
    while not is_done:
        operations += 1
        log = filled(tmp_path / "log")
        before, expected, end_offset = contents(log), newest_values(log), log.end_offset
        with monkeypatch.context() as patch:
            left = operations

            def wrap(real: Callable[..., object]) -> Callable[..., object]:
                def operation(*arguments: object) -> object:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise CrashError
                    return real(*arguments)

                return operation

            for name in CHANGING:
                patch.setattr(files, name, wrap(getattr(files, name)))
            try:
                _, groups = write_cleaned(job_for(log, segment_bytes=1200))
                put_in_place(log, groups)
                is_done = True
            except CrashError:
                pass
        log.close_files()

        reopened = reopen(tmp_path / "log", recovery_point=end_offset)
        assert newest_values(reopened) == expected, operations
        assert set(contents(reopened)) <= set(before), operations
        assert reopened.end_offset == end_offset
        assert not [name for name in os.listdir(tmp_path / "log") if name.endswith((".swap", ".cleaned", ".deleted"))]
        clean(reopened, rolls=False, first_dirty_offset=0)
        assert newest_values(reopened) == expected, operations
        reopened.close_files()
        shutil.rmtree(tmp_path / "log")
    assert operations > 60


class Journal:
    """Notes what was done to the names in a folder since it was last synced."""

    def __init__(self, directory: Path, copy: Path, patch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.copy = copy  # what the disk has for sure
        self.done: list[tuple[str, str, str]] = []
        self._rename, self._link, self._unlink = files.rename, files.link, files.unlink
        patch.setattr(files, "link", self.link)
        patch.setattr(files, "rename", self.rename)
        patch.setattr(files, "unlink", self.unlink)
        patch.setattr(files, "sync", self.sync)
        self.take_copy()

    def take_copy(self) -> None:
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.directory, self.copy)
        self.done.clear()

    def rename(self, old: str, new: str) -> None:
        self._rename(old, new)
        self.done.append(("rename", os.path.basename(old), os.path.basename(new)))

    def link(self, old: str, new: str) -> None:
        self._link(old, new)
        self.done.append(("link", os.path.basename(old), os.path.basename(new)))

    def unlink(self, path: str) -> None:
        self._unlink(path)
        self.done.append(("unlink", os.path.basename(path), ""))

    def sync(self, descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(self.directory):
            self.take_copy()

    def survive(self, kept: Callable[[int], bool]) -> None:
        """The state after a power cut: of the operations since the last sync, only the given ones are kept."""
        for place, (operation, old, new) in enumerate(self.done):
            if not kept(place) or not (self.copy / old).exists():
                continue
            if operation == "unlink":
                (self.copy / old).unlink()
            else:
                (self.copy / new).unlink(missing_ok=True)
                (self.copy / new).hardlink_to(self.copy / old)
                if operation == "rename":
                    (self.copy / old).unlink()


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_that_keeps_any_of_the_last_names_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chosen = random.Random(seed)
    log = filled(tmp_path / "log")
    expected, end_offset = newest_values(log), log.end_offset
    _, groups = write_cleaned(job_for(log, segment_bytes=chosen.choice([1200, 1 << 20])))
    with monkeypatch.context() as patch:
        journal = Journal(tmp_path / "log", tmp_path / "copy", patch)
        swaps = swaps_for(log, groups)
        done = chosen.randrange(len(swaps))
        for swap in swaps[:done]:
            swap_blocking(swap, NOW_MS)
        swap = swaps[done]
        steps = [swap.prepare, swap.sync, lambda: swap.complete(NOW_MS), swap.sync, swap.remove_swap_names]
        for step in steps[: chosen.randrange(len(steps) + 1)]:
            step()
        limit = chosen.randrange(len(journal.done) + 1)
        journal.survive((lambda place: place < limit) if seed % 2 else (lambda _: chosen.random() < 0.5))
    log.close_files()

    reopened = reopen(tmp_path / "copy", recovery_point=end_offset)

    assert newest_values(reopened) == expected
    assert reopened.end_offset == end_offset


def test_readers_that_hold_an_old_segment_finish_in_peace(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    file_range = log.read(0, 1, log.end_offset, True)
    assert file_range is not None
    before = os.pread(file_range.descriptor, file_range.length, file_range.position)
    clean(log, rolls=False)

    assert os.pread(file_range.descriptor, file_range.length, file_range.position) == before
    file_range.release()
    assert log.take_due_deletions(NOW_MS + SETTINGS.file_delete_delay_ms)


def group_of(log: Log) -> tuple[SegmentSwap, CleanedGroup]:
    _, groups = write_cleaned(job_for(log))
    return swaps_for(log, groups)[0], groups[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.remove_and_delete_segments(1, NOW_MS),
        lambda log: log.truncate_to(1),
        lambda log: log.truncate_fully_and_start_at(100),
        lambda log: log.take_offline("on purpose"),
        lambda log: log.set_directory("/somewhere/else"),
    ],
    ids=["retention", "truncation", "full truncation", "failure", "move"],
)
def test_the_result_is_thrown_away_if_the_log_has_changed(tmp_path: Path, change: Callable[[Log], None]) -> None:
    log = filled(tmp_path / "log")
    swap, _ = group_of(log)
    change(log)

    assert not swap_blocking(swap, NOW_MS)
    assert not list((tmp_path / "log").glob("*.cleaned"))
    assert not list((tmp_path / "log").glob("*.swap"))


def test_a_file_of_another_size_is_not_taken(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    swap, _ = group_of(log)
    with (tmp_path / "log" / f"{0:020d}.log.cleaned").open("ab") as file:
        file.write(b"x")
    before = contents(log)

    with pytest.raises(OSError, match="bytes, not"):
        swap_blocking(swap, NOW_MS)
    assert contents(log) == before


def test_a_failure_half_way_puts_the_log_out_of_service_and_opening_it_completes_the_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "log")
    expected = newest_values(log)
    swap, _ = group_of(log)
    swap.prepare()

    def fails(old: str, new: str) -> None:
        raise OSError(5, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", fails)
        with pytest.raises(KafkaError):
            swap.complete(NOW_MS)
    assert log.offline_reason is not None
    log.close_files()

    assert newest_values(reopen(tmp_path / "log")) == expected

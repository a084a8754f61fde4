"""The pool of open files is bounded, whatever readers do."""

from ottla.storage.descriptors import DescriptorPool


class Opened:
    """A segment that is open."""

    def __init__(self, pool: DescriptorPool) -> None:
        self.was_used = False
        self.is_read = False
        self.is_open = True
        self._pool = pool
        pool.add(self)

    def close_if_unused(self) -> bool:
        if not self.is_read:
            self.close()
        return not self.is_read

    def close(self) -> None:
        self.is_open = False
        self._pool.remove(self)


def test_the_least_recently_used_file_is_closed() -> None:
    pool = DescriptorPool(3)
    opened = [Opened(pool) for _ in range(3)]
    opened[0].was_used = True
    Opened(pool)
    assert [each.is_open for each in opened] == [True, False, True]
    assert pool.open_count == 3


def test_what_is_read_stays_open_and_what_was_too_much_is_closed_later() -> None:
    pool = DescriptorPool(2)
    opened = [Opened(pool), Opened(pool)]
    for each in opened:
        each.is_read = True
    Opened(pool)
    assert pool.open_count == 3
    for each in opened:
        each.is_read = False
    Opened(pool)
    assert pool.open_count == 2


def test_readers_shall_hold_half_of_the_files_at_most() -> None:
    pool = DescriptorPool(10)
    pool.lent_segment_count = 4
    assert not pool.is_mostly_lent
    pool.lent_segment_count = 5
    assert pool.is_mostly_lent


def test_all_but_those_that_are_read_can_be_closed() -> None:
    pool = DescriptorPool(10)
    opened = [Opened(pool) for _ in range(4)]
    opened[1].is_read = True
    pool.close_unused()
    assert [each.is_open for each in opened] == [False, True, False, False]
    assert pool.open_count == 1

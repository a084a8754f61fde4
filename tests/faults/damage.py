"""What disks and operating systems do to the end of a file, and what of it must survive."""

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

BLOCK_BYTES = 4096
HEAD = struct.Struct(">qi")
HEAD_BYTES = 12
LOST_BYTES_MAX = 5000

Damage = Callable[[bytearray, random.Random], None]


def cut_off(data: bytearray, chance: random.Random) -> None:
    """The file is shorter than it was."""
    del data[max(0, len(data) - chance.randint(1, LOST_BYTES_MAX)) :]


def zero_tail(data: bytearray, chance: random.Random) -> None:
    """The size had reached the disk, the bytes had not."""
    size = min(len(data), chance.randint(1, LOST_BYTES_MAX))
    data[len(data) - size :] = bytes(size)


def zeros_behind(data: bytearray, chance: random.Random) -> None:
    data += bytes(chance.randint(1, LOST_BYTES_MAX))


def garbage_tail(data: bytearray, chance: random.Random) -> None:
    size = min(len(data), chance.randint(1, LOST_BYTES_MAX))
    data[len(data) - size :] = chance.randbytes(size)


def garbage_behind(data: bytearray, chance: random.Random) -> None:
    data += chance.randbytes(chance.randint(1, LOST_BYTES_MAX))


def repeated_tail(data: bytearray, chance: random.Random) -> None:
    """Bytes, or whole batches, are written twice."""
    starts = [position for position, _ in batches(bytes(data))]
    start = chance.choice(starts[-10:]) if starts and chance.random() < 0.7 else chance.randrange(len(data))
    data += data[start:]


def swapped_blocks(data: bytearray, chance: random.Random) -> None:
    """Two of the last blocks of the file have changed places."""
    count = len(data) // BLOCK_BYTES
    if count < 2:
        return zero_tail(data, chance)
    one, other = (block * BLOCK_BYTES for block in chance.sample(range(max(0, count - 8), count), 2))
    data[one : one + BLOCK_BYTES], data[other : other + BLOCK_BYTES] = (
        data[other : other + BLOCK_BYTES],
        data[one : one + BLOCK_BYTES],
    )
    return None


def flipped_bit(data: bytearray, chance: random.Random) -> None:
    position = chance.randrange(max(0, len(data) - LOST_BYTES_MAX), len(data))
    data[position] ^= 1 << chance.randrange(8)


TAIL_DAMAGES: list[Damage] = [
    cut_off,
    zero_tail,
    zeros_behind,
    garbage_tail,
    garbage_behind,
    repeated_tail,
    swapped_blocks,
    flipped_bit,
]


def damage_file(path: Path, damage: Damage, chance: random.Random) -> tuple[bytes, bytes]:
    """Damage the file in its place; what it held before and what it holds now."""
    before = path.read_bytes()
    data = bytearray(before)
    damage(data, chance)
    path.write_bytes(data)
    return before, bytes(data)


def batches(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each batch of a sound file."""
    position = 0
    while position + HEAD_BYTES <= len(data):
        end = position + HEAD_BYTES + HEAD.unpack_from(data, position)[1]
        if end <= position + HEAD_BYTES or end > len(data):
            return
        yield position, end
        position = end


def intact_bytes(before: bytes, after: bytes) -> int:
    """How many bytes of whole batches at the start of the file were left as they were."""
    intact = 0
    for start, end in batches(before):
        if before[start:end] != after[start:end]:
            break
        intact = end
    return intact

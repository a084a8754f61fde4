"""Groups and transactional ids find the same partition as with Apache Kafka."""

from ottla.base.partitioning import CACHE_SIZE_MAX, KEY_LENGTH_MAX, java_hash, partition_for


def test_hashes_are_those_of_java():
    assert java_hash("") == 0
    assert java_hash("group") == 98629247
    assert java_hash("a-long-name-that-overflows") == hash_as_java_defines_it("a-long-name-that-overflows")
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_a_name_whose_hash_is_the_smallest_number_goes_to_partition_0():
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0


def test_the_answer_is_the_same_again_and_with_another_number_of_partitions():
    for key in ("orders", "o" * (KEY_LENGTH_MAX + 1)):
        expected = abs(java_hash(key))
        assert [partition_for(key, count) for count in (50, 50, 7)] == [expected % 50, expected % 50, expected % 7]


def test_more_names_than_are_remembered_do_no_harm():
    for number in range(CACHE_SIZE_MAX + 10):
        assert partition_for(f"group-{number}", 50) == abs(java_hash(f"group-{number}")) % 50


def hash_as_java_defines_it(text: str) -> int:
    value = 0
    for letter in text:
        value = value * 31 + ord(letter)
    value %= 2**32
    return value - 2**32 if value >= 2**31 else value

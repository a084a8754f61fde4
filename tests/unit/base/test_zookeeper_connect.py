"""`zookeeper.connect`, taken apart."""

import pytest

from ottla.base.zookeeper_connect import parse_connect


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost:2181", (("localhost", 2181),), ""),
        ("localhost", (("localhost", 2181),), ""),
        (" a:1 , b:2,c ", (("a", 1), ("b", 2), ("c", 2181)), ""),
        ("a:1,b:2/kafka", (("a", 1), ("b", 2)), "/kafka"),
        ("a:1/kafka/east/", (("a", 1),), "/kafka/east"),
        ("a:1/", (("a", 1),), ""),
        ("[::1]:2182,[fe80::1]/x", (("::1", 2182), ("fe80::1", 2181)), "/x"),
    ],
)
def test_servers_and_the_chroot_that_counts_for_all(
    text: str, servers: tuple[tuple[str, int], ...], chroot: str
) -> None:
    address = parse_connect(text)
    assert (address.servers, address.chroot) == (servers, chroot)
    assert parse_connect(str(address)) == address


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no list of host:port"),
        (",", "no list of host:port"),
        ("a:1,,b:2", "no list of host:port"),
        (":2181", "no list of host:port"),
        ("a b:2181", "no list of host:port"),
        ("::1:2181", "no list of host:port"),
        ("a:port", "no port between 1 and 65535"),
        ("a:0", "no port between"),
        ("a:65536", "no port between"),
        ("a:1/x,b:2/x", "once, after the last server"),
        ("a:1//x", "is no path of a node"),
        ("a:1/../x", "is no path of a node"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_connect(text)

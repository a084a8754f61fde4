"""The list of APIs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.protocol.apis import ALL_APIS, APIS, BROKER_APIS, Api
from ottla.protocol.codec import decoder_for, encoder_for
from ottla.protocol.schema import layout_of

# What Apache Kafka 4.3.1 answers to ApiVersions, for the keys that there are message classes for.
KAFKA_4_3 = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2),
    22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3),
    30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2),
    34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3),
    38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0),
    47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0),
    64: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1), 69: (0, 1), 71: (0, 0), 72: (0, 0), 74: (0, 1), 75: (0, 0),
}  # fmt: skip
EACH = pytest.mark.parametrize("api", ALL_APIS.values(), ids=lambda api: api.name)


def test_version_ranges_are_those_that_kafka_announces() -> None:
    assert {key: (api.min_version, api.max_version) for key, api in APIS.items()} == KAFKA_4_3


def test_what_only_brokers_use_is_not_among_what_kafka_announces() -> None:
    assert not APIS.keys() & BROKER_APIS.keys()
    assert ALL_APIS.keys() == APIS.keys() | BROKER_APIS.keys()


@EACH
def test_the_classes_agree_with_the_list(api: Api) -> None:
    for cls, which in ((api.request, "Request"), (api.response, "Response")):
        layout = layout_of(cls)
        assert cls.__name__ == api.name + which
        assert (layout.api_key, layout.max_version, layout.flexible_since) == (
            api.key,
            api.max_version,
            api.flexible_since,
        )
        # Kafka announces Produce v0-2 but cannot read them either
        assert layout.min_version == (3 if api.name == "Produce" else api.min_version)


@EACH
def test_every_version_can_be_compiled_and_says_what_it_is(api: Api) -> None:
    for cls in (api.request, api.response):
        assert api.name in (cls.__doc__ or "")
        assert f"(key {api.key})" in (cls.__doc__ or "")
        for version in range(layout_of(cls).min_version, layout_of(cls).max_version + 1):
            assert callable(decoder_for(cls, version))
            assert callable(encoder_for(cls, version))


def test_an_api_knows_its_versions_and_shows_itself() -> None:
    assert APIS[1].has_version(4)
    assert not APIS[1].has_version(3)
    assert not APIS[1].has_version(19)
    assert repr(APIS[1]) == "<Api Fetch key=1 v4-18>"
    with pytest.raises(AttributeError):
        APIS[1].nonsense  # noqa: B018


def test_message_modules_are_imported_only_when_needed() -> None:
    program = (
        "import sys; from ottla.protocol.apis import APIS; import ottla.protocol.headers\n"
        "assert not [name for name in sys.modules if name.startswith('ottla.protocol.messages.')]\n"
        "APIS[3].request\n"
        "print([name for name in sys.modules if name.startswith('ottla.protocol.messages.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ottla.protocol.messages.metadata']"

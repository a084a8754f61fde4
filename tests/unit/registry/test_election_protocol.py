"""Leadership among several registries, and their group protocol."""

from __future__ import annotations

import json

import pytest

from ottla.registry.election_protocol import (
    DUPLICATE_URLS,
    NO_LEADER,
    Assignment,
    RegistryIdentity,
    assign_leaders,
    decode_assignment,
    decode_candidate,
    encode_assignment,
    encode_candidate,
)

A, B = RegistryIdentity("a", 8081), RegistryIdentity("b", 8081)


def test_the_smallest_address_leads() -> None:
    assert assign_leaders({"2": B, "1": A}) == {"1": Assignment("1", A), "2": Assignment("1", A)}


def test_an_ineligible_node_does_not_lead() -> None:
    timid = A._replace(is_eligible=False)
    assert assign_leaders({"1": timid, "2": B}) == {"1": Assignment("2", B), "2": Assignment("2", B)}
    assert assign_leaders({"1": timid}) == {"1": NO_LEADER}


def test_each_topic_has_its_leader() -> None:
    other = A._replace(topic="others")
    assert assign_leaders({"1": other, "2": B}) == {"1": Assignment("1", other), "2": Assignment("2", B)}


def test_two_with_one_address_are_refused() -> None:
    assert {each.error for each in assign_leaders({"1": A, "2": A}).values()} == {DUPLICATE_URLS}


def test_words_are_confluents() -> None:
    words = {"version": 1, "host": "a", "port": 8081, "master_eligibility": True, "scheme": "http"}
    assert json.loads(encode_candidate(A)) == words
    told = json.loads(encode_assignment(Assignment("1", A)))
    assert told == {"version": 1, "error": 0, "master": "1", "master_identity": words}


@pytest.mark.parametrize("candidate", [A, B._replace(is_eligible=False, scheme="https"), A._replace(topic="x")])
def test_words_come_back(candidate: RegistryIdentity) -> None:
    assert decode_candidate(encode_candidate(candidate)) == candidate
    assert decode_assignment(encode_assignment(Assignment("1", candidate))) == Assignment("1", candidate)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"1", b"{}", b'{"host": "", "port": 1}', b'{"host": "a", "port": 99999}']
)
def test_invalid_metadata_has_no_candidate(data: bytes) -> None:
    assert decode_candidate(data) is None
    assert decode_assignment(data) == NO_LEADER


def test_an_address_of_version_six_stands_in_brackets() -> None:
    assert RegistryIdentity("::1", 8081).url == "http://[::1]:8081"

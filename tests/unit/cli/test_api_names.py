"""The APIs that Kafka's Java client knows, compared with the schemas that kio generated from Kafka's files."""

from __future__ import annotations

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from ottla.cli.cluster.api_names import KNOWN_APIS

BETWEEN_BROKERS = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}  # clients know nothing of these


def test_names_and_versions_are_those_of_kafkas_schemas() -> None:
    expected = {}
    for key in api_key_map.keys() - BETWEEN_BROKERS:
        name = api_key_map[key]
        versions = [version for version, kinds in schema_name_map[name].items() if EntityType.request in kinds]
        expected[key] = (name.replace("_", ""), min(versions), max(versions))
    found = {key: (known.name.lower(), known.min_version, known.max_version) for key, known in KNOWN_APIS.items()}
    assert found == expected
    assert list(found) == sorted(found)

"""Requests to Apache Ivy, and the parsing of its output."""

from xml.etree import ElementTree as ET

import pytest

from ottla.pipelines.spark.ivy import Module, NotFoundError, UnreachableError, judge, proxy_options, request_text

NOT_FOUND = """
:::: WARNINGS
\t\tmodule not found: org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.2.0
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t:: org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.2.0: not found
"""
NO_NETWORK = """
:::: WARNINGS
\tHost repository.example not found. url=https://repository.example/maven-metadata.xml
\t\t:: org.apache.spark#spark-sql-kafka-0-10_2.13;[4.2.0,4.2.1]: not found
"""
REFUSED = """
:::: ERRORS
\tServer access error at url https://repository.example/x (java.net.ConnectException: Connection refused)
"""


def test_a_request_names_modules_exclusions_and_overrides_in_the_order_of_the_format() -> None:
    modules = [Module("one.org", "a", "[1,2]"), Module("two.org", "b", "3", is_override=True)]
    root = ET.fromstring(request_text(modules, {"scala-library", 'odd"name'}))
    dependencies = root.find("dependencies")
    assert dependencies is not None
    assert [element.tag for element in dependencies] == ["dependency", "exclude", "exclude", "override"]
    assert dependencies[0].attrib == {"org": "one.org", "name": "a", "rev": "[1,2]", "conf": "default->default"}
    assert dependencies[3].attrib == {"org": "two.org", "module": "b", "rev": "3"}


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0"):
        judge(1, NOT_FOUND)


@pytest.mark.parametrize("output", [NO_NETWORK, REFUSED])
def test_a_missing_network_differs_from_a_missing_module(output: str) -> None:
    with pytest.raises(UnreachableError, match=r"repository\.example"):
        judge(1, output)


def test_a_failed_download_is_a_failure_also_when_ivy_ends_well() -> None:
    with pytest.raises(UnreachableError):
        judge(0, ":: FAILED DOWNLOADS ::")


def test_a_success_is_one() -> None:
    judge(0, ":: retrieving :: ottla#jars")


def test_the_proxy_of_the_environment_is_handed_to_java() -> None:
    assert proxy_options("http://proxy.example:3128") == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]
    assert proxy_options("") == []

"""Requested, cached and used jars."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.pipelines.spark import jars
from ottla.pipelines.spark.ivy import Module, NotFoundError, UnreachableError
from ottla.pipelines.spark.jars import PACKAGES, attempts, find_jars, read_cache
from ottla.pipelines.spark.places import Installed, SparkStartError, artifacts_of, read_installation

JAVA = Path("/java/bin/java")
CONNECTOR = "spark-sql-kafka-0-10_2.13"
TOKENS = "spark-token-provider-kafka-0-10_2.13"


@pytest.fixture
def spark(tmp_path: Path) -> Installed:
    folder = tmp_path / "pyspark" / "jars"
    folder.mkdir(parents=True)
    for name in ("spark-core_2.13-4.2.1.jar", "spark-tags_2.13-4.2.1.jar", "lz4-java-1.11.0.jar"):
        (folder / name).write_bytes(b"jar")
    found = read_installation(folder.parent)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OTTLA_SPARK_JARS", raising=False)
    return tmp_path / "cache" / "ottla" / "jars" / "4.2.1"


class Repository:
    """A fake Ivy: has some modules, and counts requests."""

    def __init__(self, missing: Sequence[str] = (), offline: bool = False) -> None:
        self.missing = missing
        self.offline = offline
        self.asked: list[list[Module]] = []

    def fetch(self, _spark: Installed, _java: Path, modules: Sequence[Module], folder: Path) -> None:
        self.asked.append(list(modules))
        if self.offline:
            raise UnreachableError("Host repository.example not found")
        if modules[0].name in self.missing:
            raise NotFoundError(str(modules[0]))
        if TOKENS in self.missing and len(modules) == 1:
            raise NotFoundError(f"org.apache.spark:{TOKENS}:4.2.0")
        (folder / f"{modules[0].name}-4.2.0.jar").write_bytes(b"connector")
        (folder / "kafka-clients-3.9.2.jar").write_bytes(b"clients")


def use(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr(jars, "fetch", repository.fetch)
    return repository


def test_names_of_jars_lose_their_versions() -> None:
    names = ["spark-sql-kafka-0-10_2.13-4.2.0.jar", "log4j-1.2-api-2.25.4.jar", "guava-33.4.8-jre.jar", "readme.txt"]
    names += ["netty-transport-native-epoll-4.1.118.Final-linux-x86_64.jar", "spark-tags_2.13-4.1.0-preview1.jar"]
    expected = {CONNECTOR, "log4j-1.2-api", "guava", "netty-transport-native-epoll", "spark-tags_2.13"}
    assert artifacts_of(names) == expected


def test_the_installed_spark_is_known_by_its_jars(spark: Installed) -> None:
    assert (spark.version, spark.scala, spark.minor) == ("4.2.1", "2.13", "4.2")
    assert spark.artifacts() == {"spark-core_2.13", "spark-tags_2.13", "lz4-java"}


def test_the_connector_is_of_the_same_minor_version_and_not_newer(spark: Installed) -> None:
    first, second, *_ = attempts(PACKAGES["kafka"], spark)
    assert first == [Module("org.apache.spark", CONNECTOR, "[4.2.0,4.2.1]")]
    assert second[1] == Module("org.apache.spark", TOKENS, "[4.1.0,4.1.99]", is_override=True)


def test_for_a_preview_only_its_own_connector_will_do(spark: Installed) -> None:
    first = next(attempts(PACKAGES["kafka"], spark._replace(version="4.3.0-preview2")))
    assert first[0].revision == "4.3.0-preview2"


def test_a_package_with_its_own_versions_names_its_spark_version(spark: Installed) -> None:
    assert [*attempts(PACKAGES["delta"], spark)] == [[Module("io.delta", "delta-spark_4.2_2.13", "latest.release")]]


def test_the_way_to_s3_is_of_the_version_of_hadoop(spark: Installed) -> None:
    with pytest.raises(SparkStartError, match="lacks hadoop-client-api: install PySpark again"):
        list(attempts(PACKAGES["s3"], spark))
    (spark.jars / "hadoop-client-api-3.5.0.jar").write_bytes(b"jar")
    assert list(attempts(PACKAGES["s3"], spark)) == [[Module("org.apache.hadoop", "hadoop-aws", "3.5.0")]]


def test_jars_are_fetched_once_and_the_sentence_says_what_was_chosen(
    spark: Installed, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = use(Repository(), monkeypatch)
    said: list[str] = []
    found = find_jars("kafka", spark, JAVA, said.append)
    again = find_jars("kafka", spark, JAVA, said.append)
    assert found == again
    assert len(repository.asked) == 1
    assert [path.parent for path in found.jars] == [cache / "kafka"] * 2
    assert said == ["fetching Spark's Kafka connector for Spark 4.2.1"]
    assert found.sentence.startswith(
        "Spark's Kafka connector 4.2.0 (newest of 4.2 for Spark 4.2.1) with kafka-clients 3.9.2"
    )


def test_a_part_that_is_not_published_is_taken_from_an_older_release(
    spark: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = use(Repository(missing=[TOKENS]), monkeypatch)
    find_jars("kafka", spark, JAVA)
    assert [len(modules) for modules in repository.asked] == [1, 2]


def test_offline_without_jars_one_line_says_what_to_do(
    spark: Installed, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Repository(offline=True), monkeypatch)
    with pytest.raises(SparkStartError, match=r"must be fetched once.*OTTLA_SPARK_JARS, or use connector: ottla"):
        find_jars("kafka", spark, JAVA)
    assert list(cache.iterdir()) == []


def test_offline_with_jars_there_is_no_request(spark: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Repository(), monkeypatch)
    found = find_jars("kafka", spark, JAVA)
    use(Repository(offline=True), monkeypatch)
    assert find_jars("kafka", spark, JAVA) == found


def test_damaged_jars_are_fetched_again(spark: Installed, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = use(Repository(), monkeypatch)
    (damaged := find_jars("kafka", spark, JAVA).jars[0]).write_bytes(b"something else")
    said: list[str] = []
    assert find_jars("kafka", spark, JAVA, said.append).jars[0] == damaged
    assert damaged.read_bytes() != b"something else"
    assert len(repository.asked) == 2
    assert said[0] == f"{cache / 'kafka'} is damaged or incomplete: fetching it again"
    assert [path.name for path in cache.iterdir()] == ["kafka"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"sha256": {}}', '{"sha256": {"gone.jar": "0"}}', '{"sha256": 3}'])
def test_a_list_of_jars_that_makes_no_sense_counts_as_damage(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert read_cache(tmp_path) is None


def test_a_folder_of_the_user_is_used_instead(
    spark: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Repository(offline=True), monkeypatch)
    own = tmp_path / "own"
    own.mkdir()
    for name in (f"{CONNECTOR}-4.2.1.jar", "kafka-clients-3.9.2.jar", "lz4-java-1.10.0.jar"):
        (own / name).write_bytes(b"x")
    monkeypatch.setenv("OTTLA_SPARK_JARS", str(own))
    found = find_jars("kafka", spark, JAVA)
    assert [path.name for path in found.jars] == ["kafka-clients-3.9.2.jar", f"{CONNECTOR}-4.2.1.jar"]
    with pytest.raises(SparkStartError, match=r"lacks Delta: no jar there is named delta-spark_4.2_2.13"):
        find_jars("delta", spark, JAVA)


def test_a_jar_unpublished_for_this_spark_is_an_error_with_an_alternative(
    spark: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Repository(missing=["iceberg-spark-runtime-4.2_2.13"]), monkeypatch)
    with pytest.raises(
        SparkStartError, match=r"^Iceberg is not published for Spark 4.2.1.*use a delta or a parquet sink$"
    ):
        find_jars("iceberg", spark, JAVA)


def test_an_unknown_package_is_refused(spark: Installed) -> None:
    with pytest.raises(SparkStartError, match=r"no package 'kafak'; known: kafka, delta, iceberg"):
        find_jars("kafak", spark, JAVA)


def test_what_was_fetched_can_be_checked_by_hand(
    spark: Installed, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Repository(), monkeypatch)
    find_jars("kafka", spark, JAVA)
    digests = json.loads((cache / "kafka" / "manifest.json").read_text())["sha256"]
    assert set(digests) == {f"{CONNECTOR}-4.2.0.jar", "kafka-clients-3.9.2.jar"}

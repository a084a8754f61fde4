"""Apache Kafka's own tools in one JVM: starting one for each command would cost a second every time."""

import base64
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

PROGRAM = Path(__file__).parent / "java" / "Tools.java"
CLASSES = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-groups.sh": "org.apache.kafka.tools.GroupsCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records.sh": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster.sh": "org.apache.kafka.tools.ClusterTool",
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
    "kafka-metadata-quorum.sh": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-delegation-tokens.sh": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",  # only for what it refuses: no input
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test.sh": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test.sh": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-dump-log.sh": "org.apache.kafka.tools.DumpLogSegments",
}


class JavaResult(NamedTuple):
    code: int
    out: str
    err: str


class JavaTools:
    """A JVM that runs one tool after the other. Wrong command lines of the tools with sub-commands would end it."""

    def __init__(self, jars: Path) -> None:
        command = ["java", "-XX:TieredStopAtLevel=1", "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        self.process = subprocess.Popen(
            [*command, "-cp", f"{jars}/*", str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()

    def run(self, name: str, *arguments: str) -> JavaResult:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\t".join((CLASSES[name], *arguments)) + "\n")
        self.process.stdin.flush()
        while True:
            line = self.process.stdout.readline()
            assert line, "the JVM has ended"
            if line.count("\t") == 2:  # else it is a line of a log
                break
        code, out, err = line.rstrip("\n").split("\t")
        return JavaResult(int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode())

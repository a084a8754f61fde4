"""The Spark data source format("ottla"): topics of any Kafka cluster as tables and streams, without the JVM connector.

    from ottla.pipelines.source import register, read_topic

    register(spark)
    spark.read.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders").load()
    read_topic(spark, "orders", bootstrap_servers="127.0.0.1:9092")  # the same

Columns and options are those of Spark's kafka source. PySpark is imported on first use.
"""

from ottla.pipelines.source.cluster import commit_progress
from ottla.pipelines.source.dataframes import read_topic, read_topic_stream, register

__all__ = ["commit_progress", "read_topic", "read_topic_stream", "register"]

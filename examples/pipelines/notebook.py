"""As in a notebook: plain PySpark, with ottla's functions for topics and without its pipelines.

    python orders-to-postgres/generate.py        # orders to read
    ottla topics create money                    # where the totals go
    python notebook.py                           # or its parts, cell by cell

Money by customer from a topic of orders: first as a table, then as a stream that writes to a topic exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.sinks.topic import exactly_once_topic
from ottla.pipelines.source import read_topic, read_topic_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = "order string, customer string, at timestamp, amount decimal(10,2)"


def main(spark: SparkSession, bootstrap: str, folder: str) -> DataFrame:
    """Return the totals by minute, read back from the topic that the stream has written."""
    # The whole topic as a table.
    records = read_topic(spark, "orders", bootstrap_servers=bootstrap)
    orders = records.select(F.from_json(F.col("value").cast("string"), ORDER).alias("order")).select("order.*")
    orders.groupBy("customer").agg(F.sum("amount").alias("spent")).orderBy(F.desc("spent")).show(5)

    # The same topic as a stream: each order once, added up by the minute.
    stream = read_topic_stream(spark, "orders", bootstrap_servers=bootstrap, starting="earliest")
    events = stream.select(F.from_json(F.col("value").cast("string"), ORDER).alias("order")).select("order.*")
    once = events.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["order"])
    minutes = once.groupBy(F.window("at", "1 minute")).agg(F.count("*").alias("orders"), F.sum("amount").alias("money"))
    totals = minutes.select(F.col("window.start").alias("minute"), "orders", "money")

    write = exactly_once_topic("money", bootstrap_servers=bootstrap, query="money", folder=f"{folder}/staged")
    query = (
        totals.writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # all existing records; remove it to run continuously
        .start()
    )
    query.awaitTermination()

    made = read_topic(spark, "money", bootstrap_servers=bootstrap)
    fields = "minute timestamp, orders bigint, money decimal(20,2)"
    return made.select(F.from_json(F.col("value").cast("string"), fields).alias("row")).select("row.*")


if __name__ == "__main__":
    from tempfile import mkdtemp

    from ottla.pipelines.spark.session import start_session

    session = start_session("notebook", on_step=print)  # any SparkSession will do
    main(session, "127.0.0.1:9092", mkdtemp()).orderBy("minute").show()
    session.stop()

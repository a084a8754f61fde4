"""Lets Spark find the data source by itself.

Spark looks for installed modules whose names begin with pyspark_ and takes their DefaultSource: with this one
format("ottla") works without register().
"""

from ottla.pipelines.source.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]

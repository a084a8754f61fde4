"""The schema registry: subjects, versions and compatibility checks, with the REST API of Confluent's
Schema Registry.
"""

"""The schema registry: subjects, versions and compatibility, with the API of Confluent's."""

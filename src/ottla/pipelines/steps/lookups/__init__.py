"""Lookups of row keys in a web server or a database, with a cache."""

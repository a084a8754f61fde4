"""Answers from elsewhere for the keys of rows: from a web server or a database, with a memory."""

"""Messages of topics for people: read, decoded, masked, searched, written to files."""

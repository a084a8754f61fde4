"""Messages of a topic: read, decoded, masked, searched and exported."""

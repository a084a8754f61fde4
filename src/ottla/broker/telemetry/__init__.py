"""Client metrics pushed by clients (KIP-714)."""

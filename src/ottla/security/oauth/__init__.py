"""Signed tokens of an identity provider (JWT): checked by a broker, asked for by a client."""

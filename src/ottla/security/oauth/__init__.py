"""Signed tokens of an identity provider (JWT): keys for their verification, and requests for them."""

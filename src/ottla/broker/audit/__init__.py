"""Audit trail: logins, denials and administrative changes, written to the topic `__ottla_audit` (docs/audit.md)."""

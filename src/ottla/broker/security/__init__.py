"""Authentication of connections: logins of clients and of this broker, TLS, delegation tokens."""

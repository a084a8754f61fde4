"""Who may come in: the logins of connections, ours at other brokers, what they need of settings and metadata."""

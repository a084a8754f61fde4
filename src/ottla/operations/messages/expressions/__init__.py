"""What is searched for: the grammar, what it means for one message, and how most messages are ruled out at once."""

"""Access rules for tools and pages: from words, into words, and why somebody may do something or not."""

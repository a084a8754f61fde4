"""ACLs for CLI and console: parsing, printing, and explaining authorization decisions."""

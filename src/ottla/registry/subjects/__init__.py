"""The registry's state and decisions: contexts, subjects, versions, IDs, levels, modes. Pure: no socket, no clock."""

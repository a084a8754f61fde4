"""What the registry knows and decides: contexts, subjects, versions, ids, levels, modes. Pure: no socket, no clock."""

"""Operations shared by CLI, console and monitor: lag, offset resets, replica moves, diagnosis, rates, search."""

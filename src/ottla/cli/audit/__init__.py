"""Behind `ottla audit`: which events somebody wants to see, and how they are shown."""

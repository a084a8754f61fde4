"""The monitor over HTTP: Burrow's API, metrics, and limits for whoever asks."""

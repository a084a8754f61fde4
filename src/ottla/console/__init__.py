"""The web console: see and steer a cluster in the browser. See docs/console.md."""

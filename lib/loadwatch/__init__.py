"""Watch a load test while it runs, and say when it may be stopped (docs/watch.md)."""

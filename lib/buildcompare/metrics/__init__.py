"""Metrics of a test: levels, equal load, events, error rates."""

"""Measure and compare the metrics of a test: levels, values at equal load, events, error rates."""

"""Measure and judge the metrics of a test: levels, equal load, events and error rates."""

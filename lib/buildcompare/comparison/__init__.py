"""Run a comparison: read its inputs, measure and judge each test, plan further runs."""

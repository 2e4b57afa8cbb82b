"""Decide whether a run and a test are valid, and between which times."""

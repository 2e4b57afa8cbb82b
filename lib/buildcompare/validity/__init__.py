"""Decide whether a run and a test are valid, and up to which time."""

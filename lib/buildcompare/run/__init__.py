"""Stands on top of all rooms: checks the params, runs the notebook, publishes what it made."""

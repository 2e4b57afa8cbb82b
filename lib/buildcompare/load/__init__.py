"""Analyse the curve of connected users: steady window, ramp, waves and supported users."""

"""Calibration files, which hold the noise between repeated runs of one build."""

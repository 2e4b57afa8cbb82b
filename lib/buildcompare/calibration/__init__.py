"""Learn noise from repeated runs of one build."""

"""Profiles of stacks: read them, compare the share of each frame between two builds."""

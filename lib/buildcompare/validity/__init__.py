"""Rules that say whether a run may be judged."""

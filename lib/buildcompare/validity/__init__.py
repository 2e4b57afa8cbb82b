"""Judge whether a run and a test may be judged, and up to when."""

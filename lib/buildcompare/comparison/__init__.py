"""One test of a comparison, from recordings to a result."""

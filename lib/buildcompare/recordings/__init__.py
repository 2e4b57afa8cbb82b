"""Recordings of runs: their sources, their Parquet, the cache of what was pulled."""

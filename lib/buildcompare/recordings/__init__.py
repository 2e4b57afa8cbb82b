"""Recordings of runs: readers of each kind of source, their Parquet, the cache of pulled runs."""

"""Recordings of runs: readers for each kind of source, the Parquet format, and the cache of pulled runs."""

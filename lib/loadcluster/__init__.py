"""Batches of reports on the workers of a Dask cluster: `batch --dask` of buildcompare."""

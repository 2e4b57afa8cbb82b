"""Results for Prometheus and statsd: the command `export` of buildcompare."""

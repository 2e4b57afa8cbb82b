"""One page of all releases: the command `index` of buildcompare."""

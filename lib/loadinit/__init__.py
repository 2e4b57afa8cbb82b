"""First params files and catalogues for builds that nobody has described: the command `init` of buildcompare."""

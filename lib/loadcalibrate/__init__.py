"""The noise between runs of one build: the command `calibrate` of buildcompare."""

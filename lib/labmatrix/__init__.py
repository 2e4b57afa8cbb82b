"""A matrix of variants beside one baseline: what each factor does, and which variants differ.

A kind of params files for buildcompare, on which this package builds.
"""

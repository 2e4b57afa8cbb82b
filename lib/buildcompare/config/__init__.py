"""Params files, catalogues of metrics, and the errors of a user's input."""

"""Reports: fragments for the notebook, and exporters that publish it."""

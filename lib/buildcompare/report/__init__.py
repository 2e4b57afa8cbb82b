"""What people read: fragments for the notebook, and the exporters that publish it."""

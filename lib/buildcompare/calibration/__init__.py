"""What repeated runs of one build teach."""

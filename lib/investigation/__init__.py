"""Look into one metric or label: its numbers over any window, live queries, comments, and widgets that show them."""

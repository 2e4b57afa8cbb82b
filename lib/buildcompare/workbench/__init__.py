"""Look into one metric or label: numbers over any window, live queries, comments; and the widgets that show them."""

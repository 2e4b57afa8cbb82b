"""Keep earlier comparisons in a ledger, and compare new ones with them."""

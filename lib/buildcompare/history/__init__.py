"""How does a comparison stand beside earlier ones? The ledger of the past, and what it says."""

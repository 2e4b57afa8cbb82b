"""Words for numbers, codes and reasons."""

"""Where a build spends its time: profiles of stacks, and the frames whose share grew or shrank."""

"""What a mask keeps of a tile: intervals and truth over a box, lookups, loop bounds, key sets, tile rules."""

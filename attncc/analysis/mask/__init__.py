"""What a mask keeps of a tile: interval and truth rules over a box, lookups, loop bounds, key sets, tile rules."""

"""What the portable families share: tables of tiles, shared memory, legality."""

// What a tile holds: no kept pair, anything, only kept pairs.
enum TileKind { EMPTY, PARTIAL, FULL };

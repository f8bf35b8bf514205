"""What attention costs: FLOPs, the bytes of each loop order, and the roofline of a device."""

"""What attention costs: FLOPs, bytes of each loop order, and the roofline of a device."""

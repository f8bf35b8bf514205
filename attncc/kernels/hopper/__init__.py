"""What the families for Hopper share."""

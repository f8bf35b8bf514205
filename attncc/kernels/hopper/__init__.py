"""What the Hopper families share."""

"""Tiles in two dimensions: patches and windows of a canvas, and when they leave less to compute."""

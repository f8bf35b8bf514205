"""Tiles in two dimensions: fixed ones and windows, and when they leave less to compute."""

"""Tiles on a 2-D grid of positions, and windows that follow the queries: when they leave less to compute."""

"""Meshes and the one table that maps logical axes onto them."""

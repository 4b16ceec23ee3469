"""Damaged run files, and every view of them."""

"""Semantic role labeling: who did what to whom."""

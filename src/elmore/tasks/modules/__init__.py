"""Layers that tasks share."""

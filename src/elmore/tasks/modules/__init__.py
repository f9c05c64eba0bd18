"""Layers that several tasks use."""

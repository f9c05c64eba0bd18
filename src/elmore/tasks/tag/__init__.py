"""Tagging: one tag per word, such as parts of speech."""

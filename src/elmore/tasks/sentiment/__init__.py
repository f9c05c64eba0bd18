"""Sentiment of sentences."""

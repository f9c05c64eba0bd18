"""Named-entity recognition."""

"""Train or fine-tune a biLM."""

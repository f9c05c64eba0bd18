"""The names that other ELMo packages had, so that old code runs after changing one import."""

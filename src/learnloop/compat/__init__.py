"""The interfaces that the seed documents describe, on the parts that all use."""

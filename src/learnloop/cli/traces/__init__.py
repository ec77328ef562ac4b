"""The commands about what agents did."""

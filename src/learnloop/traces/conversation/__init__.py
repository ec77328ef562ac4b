"""What agents and models said to each other, in one shape, whichever API it came from."""

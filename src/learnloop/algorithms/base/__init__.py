"""What every sequential algorithm is, and the parts that all of them share."""

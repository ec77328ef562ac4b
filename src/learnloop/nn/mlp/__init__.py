"""The default network: a multi-layer perceptron on numpy with its own forward and backward."""

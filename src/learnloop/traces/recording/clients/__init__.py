"""Records what programs ask of models, through the clients that they use."""

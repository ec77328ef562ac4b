"""One linear model over hashed features of contexts and actions: any context, any set of actions."""

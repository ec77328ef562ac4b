"""The command line: parse, call the facade, print. Data goes to standard output, everything else to standard error."""

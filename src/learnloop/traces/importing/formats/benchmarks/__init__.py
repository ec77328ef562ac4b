"""Results of benchmarks of agents: one file a benchmark."""

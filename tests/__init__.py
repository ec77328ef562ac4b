"""The tests mirror the source; ``contracts`` holds the suites that every implementation runs."""

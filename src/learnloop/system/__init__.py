"""What the disk and the operating system are used for: files written whole, state kept, child processes run."""

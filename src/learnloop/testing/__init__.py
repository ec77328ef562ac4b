"""What tests and third parties import: published problems, contract suites and fakes. The product never does."""

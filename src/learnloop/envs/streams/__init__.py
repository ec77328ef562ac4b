"""One stream of steps over all of gymnasium's forms: single, vectorised and in processes."""

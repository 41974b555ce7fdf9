"""Tuning: settings of training are tried, in parallel and from one run to the next, and the best are compared."""

"""Fit of the speeds that ship with the package to the measurements, and how their constants were found."""

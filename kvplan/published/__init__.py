"""Kernel times that others measured and published, as calibrations labelled as theirs."""

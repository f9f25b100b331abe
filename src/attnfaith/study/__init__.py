"""Studies: a grid of recipes (`plan`), its cells run by Snakemake (`execute`, `cell`) and the tables of all their records
(`results`); `command` does one after the other.
"""

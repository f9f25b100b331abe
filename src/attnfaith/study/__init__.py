"""Studies: a grid of recipes (`plan`), its cells run by Snakemake (`execute`, `cell`) and their tables (`results`)."""

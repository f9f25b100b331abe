"""Studies: a plan of cells, run by a workflow engine, and the tables of all their records."""

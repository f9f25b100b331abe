"""The report of a record: one HTML page with its tables and figures in a folder."""

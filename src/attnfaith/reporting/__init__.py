"""From a record to tables, figures and an HTML page. Needs no model: torch is never imported here."""

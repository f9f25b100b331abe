"""Interventions: measures that change attention, or the text, and read the model again. One class a measure."""

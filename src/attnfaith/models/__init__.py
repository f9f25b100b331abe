"""The models: a closed, flat folder whose files travel with every checkpoint as remote code."""

"""Is sparse attention more interpretable? The tables, figures and words of this study."""

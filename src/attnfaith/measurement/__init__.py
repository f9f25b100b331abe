"""From a model and encoded texts to a record: `registry` has the measures, `engine` runs them."""

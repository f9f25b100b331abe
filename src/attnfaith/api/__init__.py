"""The functions of a notebook, which `attnfaith` exports. Only `measuring` and `viewing` load torch."""

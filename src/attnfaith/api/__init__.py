"""The functions of a notebook, which `attnfaith` exports: `measure`, `load`, `compare`, `view`, `measures`, `train_gates`.

Only `measuring` and `viewing` load torch.
"""

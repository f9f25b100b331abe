"""What a notebook uses, by the names that `attnfaith` itself has: `measure` a model on texts, look at the `Record`, `load`
and `compare` records, list the `measures`.

`texts`: what people have, as what is measured. `measuring`: from a model and texts to a record. `records`: the record in
their hands, `frames` what it says as frames. `listing`: what can be measured. `gates`:
what the measure `diffmask` has to be trained to. Only `measuring`, `viewing` and `gates` load torch.
"""

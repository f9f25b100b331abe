"""Measures of token importance that are not attention, one file a family.

`attnfaith.measurement.registry.Measure` describes a measure. One that explains a number chosen by `target` and `output`
derives from `targets.TargetMeasure`. A signed measure, whose column declares it, ranks by value: a token with a negative
score is evidence against what is explained. A shorter way through a BiLSTM is in `lstm`.
"""

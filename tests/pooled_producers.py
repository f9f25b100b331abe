"""The producers that measure the classifiers of this package; others need a stack of layers."""

from attnfaith.measurement import load_producers, producers
from attnfaith.subjects import Pooled


POOLED = sorted(name for name, module in load_producers(sorted(producers())).items() if Pooled.can >= module.NEEDS)

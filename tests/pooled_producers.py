"""The measures of the classifiers of this package; others need a stack of layers."""

from attnfaith.measurement.registry import classes
from attnfaith.subjects import Pooled


POOLED = sorted(cls.name for cls in classes() if Pooled.can >= cls.needs)

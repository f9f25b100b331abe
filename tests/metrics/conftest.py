import sys

import numpy as np
import pytest


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory):
    """The evaluate library, with caches of its own and without network."""
    home = tmp_path_factory.mktemp("huggingface")
    with pytest.MonkeyPatch.context() as patch:
        import evaluate

        patch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", True)
        patch.setattr(evaluate.config, "HF_METRICS_CACHE", home / "metrics")
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", home / "modules")
        patch.syspath_prepend(home / "modules")
        forget()
        yield evaluate
        forget()


def forget():
    """Drop modules that evaluate loaded from the caches of other tests."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "evaluate_modules"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def load(evaluate):
    """The metric of a configuration, held in memory."""
    from attnfaith.metrics.registration import METRIC_DIR

    def load(configuration=None, **settings):
        return evaluate.load(str(METRIC_DIR), configuration, keep_in_memory=True, **settings)

    return load


@pytest.fixture(scope="module")
def metric(load):
    return load()


@pytest.fixture(scope="module")
def same():
    """Assert that two results have the same names and numbers, NaN included."""

    def same(actual, expected):
        assert actual.keys() == expected.keys()
        np.testing.assert_array_equal([actual[name] for name in expected], list(expected.values()))

    return same

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
        yield evaluate

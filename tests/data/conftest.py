"""No network, and a Hub that is not there."""

import types

import pytest


@pytest.fixture(autouse=True)
def offline_with_own_cache(monkeypatch, tmp_path_factory):
    """No network, no cached file outside the temporary folder, no data root of the user."""
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.fixture
def hub(monkeypatch):
    """The calls of `load_dataset_builder`, and the splits that it reads from the Hub."""
    import datasets

    calls, splits = [], {}
    builder = types.SimpleNamespace(
        hash="c0ffee", download_and_prepare=lambda: None, as_dataset=lambda: datasets.DatasetDict(splits)
    )
    monkeypatch.setattr(
        datasets, "load_dataset_builder", lambda *where, **options: calls.append((where, options)) or builder
    )
    return calls, splits

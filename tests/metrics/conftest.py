import sys

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
    """Modules of evaluate that were made in the folder of other tests, where this one's would be looked for."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "evaluate_modules"]:
        del sys.modules[name]


ACCURACY = '''
import datasets
import evaluate


class Accuracy(evaluate.Metric):
    """As the module of that name on the Hub, which is not at hand: the share of predictions that are right."""

    def _info(self):
        number = datasets.Value("int32")
        return evaluate.MetricInfo(
            description="", citation="", features=datasets.Features({"predictions": number, "references": number})
        )

    def _compute(self, predictions, references):
        return {"accuracy": sum(p == r for p, r in zip(predictions, references)) / len(references)}
'''


@pytest.fixture
def accuracy(evaluate, tmp_path):
    folder = tmp_path / "accuracy"
    folder.mkdir()
    (folder / "accuracy.py").write_text(ACCURACY)
    return evaluate.load(str(folder))

"""Small classifiers that read a selection, for tests of subjects, measures and runs."""

import torch

from attnfaith import RationaleClassifierConfig, RationaleClassifierForSequenceClassification


KINDS = {
    "bernoulli": {"sampler": "bernoulli"},
    "max": {"sampler": "bernoulli", "pooling": "max"},
    "hardkuma": {"sampler": "hardkuma", "pooling": "attention"},
    "budget": {"sampler": "budget", "budget": 0.4},
    "bounded": {"sampler": "hardkuma", "budget": 0.3},
}
"""Every sampler and every option at least once."""


def rationale_model(kind="bernoulli", seed=0, vocab_size=60, **fields):
    """A model far from its start: scores of tokens are as far from one another as its gates are, and around 0."""
    sizes = {"vocab_size": vocab_size, "embedding_size": 8, "hidden_size": 8, "intermediate_size": 8, "embedding_std": 0.5}
    torch.manual_seed(seed)
    config = RationaleClassifierConfig(**{**sizes, **KINDS.get(kind, {}), **fields})
    model = RationaleClassifierForSequenceClassification(config).eval()
    apart = {"bernoulli": 2.0, "hardkuma": 3.0, "budget": 0.1}[config.sampler]
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.startswith(("encoder", "decoder", "alignment")) and "norm" not in name.lower():
                values.mul_(4)
        model.selector.score.weight.normal_()
        ids = torch.randint(4, vocab_size, (4, 12))
        ids[:, 0], ids[:, -1] = 2, 3
        scores = model(ids).selection_scores[:, 1:-1].flatten(0, 1)
        model.selector.score.weight.mul_(apart / scores.std(0).unsqueeze(1))
        model.selector.score.bias.copy_(-scores.median(0).values * apart / scores.std(0))
    return model

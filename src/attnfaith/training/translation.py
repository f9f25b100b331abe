"""Training of sequence-to-sequence models with transformers' Trainer, translations, and their scores.

Shapes: B pairs, G target tokens with the end of the sentence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from attnfaith.data.pair_encoding import UNCOUNTED, pad_pairs
from attnfaith.support.errors import AttnfaithError
from attnfaith.training.penalties import hidden_links, linked_mass
from attnfaith.training.trainers import BaseConfig, BaseTrainer


PAIRS_AT_ONCE = 64


@dataclass
class TranslationConfig(BaseConfig):
    """Arguments of `TranslationTrainer`. impermissible_mass: lambda, the weight of `hidden_links`; 0 adds nothing."""

    impermissible_mass: float = 0.0


class TranslationTrainer(BaseTrainer):
    """A Trainer whose loss is the mean of -log p over target tokens, plus a penalty on attention to linked source words.

    Data are splits encoded by `encode_pairs`. Evaluations hold token_accuracy, the share of target tokens that are the
    likeliest given the true ones before them, 0..1; and `linked_mass` where pairs have links.

    Raises AttnfaithError for a penalty without links.
    """

    config_class = TranslationConfig

    def __init__(self, model, args, *, train_dataset, processing_class, **kwargs):
        linked = "links" in train_dataset.column_names
        if args.impermissible_mass and not linked:
            raise AttnfaithError("penalties.impermissible_mass needs training pairs with links: give them, or leave it out")
        data = {"train_dataset": train_dataset, "processing_class": processing_class, "compute_metrics": token_scores}
        collator = partial(pad_pairs, pad_token_id=processing_class.pad_token_id, linked=linked)
        super().__init__(model, args, **data, data_collator=collator, **kwargs)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return self.losses(model, inputs, attends=self.args.impermissible_mass > 0)[0]

    def losses(self, model, inputs, *, attends: bool):
        """Return the loss of a batch, and (B,3): right tokens, all tokens, and their mass on linked words."""
        linked = inputs.pop("linked", None)
        outputs = model(**inputs, output_attentions=attends and linked is not None)
        loss, labels = outputs.loss, inputs["labels"]
        counted = labels != UNCOUNTED
        right = (outputs.logits.argmax(-1) == labels) & counted
        mass = torch.full((len(labels),), torch.nan, device=labels.device)
        if outputs.cross_attentions:
            mass = linked_mass(torch.cat(outputs.cross_attentions, 1), linked, counted)  # of all heads of all layers
            if self.args.impermissible_mass:
                loss = loss + self.args.impermissible_mass * hidden_links(mass.sum() / counted.sum())
        return loss, torch.stack([right.sum(-1).float(), counted.sum(-1).float(), mass.detach()], -1)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, scores = self.losses(model, self._prepare_inputs(inputs), attends=True)
        return loss.detach(), scores, scores  # the Trainer wants labels beside predictions


def token_scores(prediction) -> dict[str, float]:
    """Return token_accuracy and, where defined, linked_mass over all target tokens of an evaluation."""
    right, tokens, mass = np.asarray(prediction.predictions, np.float64).T
    scores = {"token_accuracy": float(right.sum() / tokens.sum())}
    return scores if np.isnan(mass).any() else {**scores, "linked_mass": float(mass.sum() / tokens.sum())}


@torch.no_grad()
def translations(model, tokenizer, rows) -> Iterator[str]:
    """Generate the translation of each encoded pair greedily, in order: text without markers.

    A translation has at most twice the tokens of the longest target of the rows, plus 10.
    """
    most = 2 * max(map(len, rows["labels"])) + 10
    model.eval()
    for start in range(0, len(rows), PAIRS_AT_ONCE):
        batch = pad_pairs(list(rows.select(range(start, min(start + PAIRS_AT_ONCE, len(rows))))), tokenizer.pad_token_id)
        sources = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
        generated = model.generate(**sources, max_new_tokens=most, num_beams=1, do_sample=False)
        yield from tokenizer.batch_decode(generated, skip_special_tokens=True)


def translation_scores(generated: Sequence[str], targets: Sequence[str]) -> Mapping[str, float | str | None]:
    """Compare generated sentences with the targets, by words between blanks.

    exact: the share of identical sentences. word_accuracy: the share of target words, and ends of sentences, that are at
    their place in the generated sentence (Pruthi et al.'s accuracy). bleu and chrf, 0..100, and their signatures, by
    sacrebleu without tokenisation; None, with one printed line, where it is not installed.
    """
    pairs = [(sentence.split(), target.split()) for sentence, target in zip(generated, targets, strict=True)]
    right = 0
    for words, target in pairs:
        right += sum(word == expected for word, expected in zip(words, target, strict=False))
        right += len(words) == len(target)
    scores: dict[str, float | str | None] = {
        "exact": sum(words == target for words, target in pairs) / len(pairs),
        "word_accuracy": right / sum(len(target) + 1 for _, target in pairs),
    }
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        print("BLEU and chrF are left out: they need sacrebleu (pip install 'attnfaith[translation]')")
        return {**scores, "bleu": None, "chrf": None}
    for name, metric in {"bleu": BLEU(tokenize="none", force=True), "chrf": CHRF()}.items():
        scores[name] = metric.corpus_score(list(generated), [list(targets)]).score
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores

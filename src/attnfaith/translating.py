"""Training of sequence-to-sequence models with transformers' Trainer, and what they then generate.

Shapes: B pairs, G target tokens with the end of the sentence.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from transformers import EarlyStoppingCallback, TrainingArguments

from attnfaith.data.pairs.tokenization import UNCOUNTED, pad_pairs
from attnfaith.errors import AttnfaithError
from attnfaith.objectives.linked_mass import hidden_links, linked_mass
from attnfaith.watched import WatchedTrainer


SELECTION_METRICS = ("loss", "token_accuracy")
SCORES = ("token_accuracy", "linked_mass")
PAIRS_AT_ONCE = 64


class TranslationTrainer(WatchedTrainer):
    """A Trainer whose loss is the mean of -log p over target tokens, plus a penalty on attention to linked source words.

    penalty: lambda, the weight of `hidden_links`; 0 adds nothing. Pairs that have links bring them (`pad_pairs`).
    Evaluations have token_accuracy, the share of target tokens that are the likeliest given the true ones before them, 0..1;
    and where pairs have links and the model gives its attention, linked_mass, see there.
    """

    def __init__(self, *args, penalty: float = 0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.penalty = penalty

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, _ = self.losses(model, inputs, attends=self.penalty > 0)
        if model.training:
            self.check_loss(loss)
        return loss

    def losses(self, model, inputs, *, attends: bool):
        """The loss of a batch, and per pair how many tokens are right, there are, and their mass on linked words (B,3)."""
        linked = inputs.pop("linked", None)
        outputs = model(**inputs, output_attentions=attends and linked is not None)
        loss, labels = outputs.loss, inputs["labels"]
        counted = labels != UNCOUNTED
        right = (outputs.logits.argmax(-1) == labels) & counted
        mass = torch.full((len(labels),), torch.nan, device=labels.device)
        if outputs.cross_attentions:
            attention = torch.cat(outputs.cross_attentions, 1)  # all heads of all layers
            if self.penalty:
                loss = loss + self.penalty * hidden_links(linked_mass(attention, linked, counted))
            mass = ((attention.detach().mean(1) * linked).sum(-1) * counted).sum(-1)
        return loss, torch.stack([right.sum(-1).float(), counted.sum(-1).float(), mass], -1)

    def trained_model(self):
        """The model that was trained."""
        return self.accelerator.unwrap_model(self.model)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, scores = self.losses(model, self._prepare_inputs(inputs), attends=True)
        return loss.detach(), scores, scores  # the Trainer wants labels beside predictions


def token_scores(prediction) -> dict[str, float]:
    """token_accuracy and, where it is defined, linked_mass, over all target tokens of an evaluation."""
    right, tokens, mass = np.asarray(prediction.predictions, np.float64).T
    scores = {"token_accuracy": float(right.sum() / tokens.sum())}
    return scores if np.isnan(mass).any() else {**scores, "linked_mass": float(mass.sum() / tokens.sum())}


def make_translation_trainer(
    model,
    tokenizer,
    train,
    validation,
    arguments: TrainingArguments,
    *,
    penalty: float = 0.0,
    patience: int | None = None,
) -> TranslationTrainer:
    """A Trainer for encoded splits (`encode_pairs`).

    Raises AttnfaithError for a penalty where pairs have no links, or on a model without attention.
    """
    if penalty and "links" not in train.column_names:
        raise AttnfaithError(
            f"penalties.impermissible_mass={penalty:g}, and the training pairs have no links: give links, or leave it out"
        )
    if penalty and getattr(model.config, "projection", "softmax") in ("none", "uniform"):
        raise AttnfaithError(
            f"penalties.impermissible_mass={penalty:g} with model.projection={model.config.projection!r}: there is no "
            "attention that could change; leave one of them out"
        )
    return TranslationTrainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
        data_collator=partial(pad_pairs, pad_token_id=tokenizer.pad_token_id, linked="links" in train.column_names),
        compute_metrics=token_scores,
        callbacks=[EarlyStoppingCallback(patience)] if patience else None,
        penalty=penalty,
    )


def translations(model, tokenizer, rows, *, beams: int = 1) -> Iterator[str]:
    """What a model generates for each encoded pair, in order: text without markers.

    beams: 1 is greedy. A translation ends after twice the longest target of the rows and 10 tokens more, at the latest.
    """
    most = 2 * max(map(len, rows["labels"])) + 10
    device = next(model.parameters()).device
    model.eval()
    for start in range(0, len(rows), PAIRS_AT_ONCE):
        batch = pad_pairs(list(rows.select(range(start, min(start + PAIRS_AT_ONCE, len(rows))))), tokenizer.pad_token_id)
        given = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            made = model.generate(**given, max_new_tokens=most, num_beams=beams, do_sample=False)
        yield from tokenizer.batch_decode(made, skip_special_tokens=True)


def translation_scores(generated: Sequence[str], targets: Sequence[str]) -> Mapping[str, float | str | None]:
    """How generated sentences agree with the targets, words as between blanks.

    exact: the share of sentences that are the same. word_accuracy: the share of target words, and the end of the sentence,
    that stand at their place in what was generated (Pruthi et al.'s accuracy). bleu and chrf, 0..100, and their signatures,
    by sacrebleu over sentences as they are divided already; None, with one printed line, where it is not installed.
    """
    divided = [(made.split(), target.split()) for made, target in zip(generated, targets, strict=True)]
    right = sum(
        sum(a == b for a, b in zip(made, target, strict=False)) + (len(made) == len(target)) for made, target in divided
    )
    scores: dict[str, float | str | None] = {
        "exact": sum(made == target for made, target in divided) / len(divided),
        "word_accuracy": right / sum(len(target) + 1 for _, target in divided),
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

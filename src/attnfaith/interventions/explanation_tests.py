"""Tests of explanations: what a model predicts from the tokens that measures rank first, and from the text without them.

The measures under test are those of `scores`, {measure: one array (T,) an instance}; without it attention alone. Equal
scores are put in a random order, drawn once for each text and the same for all measures, so that neither the place of a
token nor luck sets two measures apart.

Shapes: B instances, L input positions, T items of attention (tokens; of hierarchical models sentences or words), V parts of
a text, M measures, S shares or sizes, K draws, C classes, E embedding.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.targets import softmax
from attnfaith.measurement.options import Absent, Draws, Shares
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import Batch, Subject, removal, require, whole_logits


UNDEFINED = "the measure is undefined here, or the text is empty"


def scores_of(subject: Subject, batch: Batch, scores: Mapping | None) -> Mapping[str, list[np.ndarray]]:
    """The scores under test: those that are given, else attention alone."""
    if scores is not None:
        return scores
    weights, mask = subject.attention(batch).double().cpu().numpy(), subject.attendable(batch).cpu().numpy()
    return {"attention": [row[inside] for row, inside in zip(weights, mask, strict=True)]}


@torch.no_grad()
def whole(subject: Subject, batch: Batch) -> np.ndarray:
    """Class probabilities (B,C) in float64 of the texts as they are."""
    return whole_logits(subject, batch).double().softmax(-1).cpu().numpy()


def check_absent(subject: Subject, absent: str, name: str) -> None:
    """Raise SubjectError for a subject that cannot read texts so."""
    require(subject, {removal.ABSENT[absent]}, f"{name} with absent='{absent}'")


def read_parts(subject: Subject, batch: Batch, parts: Sequence[np.ndarray], absent: str) -> list[np.ndarray]:
    """Class probabilities (V,C) in float64 of parts of each text: one array (V,T) bool an instance, true where items stay.

    absent: what becomes of the other items, see `subjects.removal`.
    """
    return [softmax(logits) for logits in read_logits(subject, batch, parts, absent)]


def read_logits(subject: Subject, batch: Batch, parts: Sequence[np.ndarray], absent: str) -> list[np.ndarray]:
    """Logits (V,C) in float64 of the same. No part is read twice."""
    different = [_distinct(part) for part in parts]
    logits = removal.read_parts(subject, batch, [part for part, _ in different], absent)
    return [values[number] for values, (_, number) in zip(logits, different, strict=True)]


def _distinct(parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of parts (V,T) bool, and which of them each row is (V,)."""
    packed = np.packbits(parts, axis=1)  # eight items a byte: rows are compared as short strings
    if not packed.shape[1]:  # no items: all parts are the empty one
        return parts[:1], np.zeros(len(parts), np.int64)
    _, first, number = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return parts[first], number.reshape(-1)


def rank(scores: Sequence[np.ndarray], random: np.random.Generator) -> np.ndarray:
    """Orders (M,T) of decreasing scores, one array (T,) a measure; equal scores in one random order for all measures."""
    tie_breaker = random.permutation(len(scores[0]))
    return np.stack([np.lexsort((tie_breaker, -np.asarray(values, np.float64))) for values in scores])


def first_ranked(scores: Sequence[np.ndarray], counts: Sequence[int], random: np.random.Generator) -> np.ndarray:
    """Which tokens (M,S,T) bool are the `counts` (S,) first of each measure."""
    ranks = np.argsort(rank(scores, random), 1)
    return ranks[:, None] < np.array(counts)[None, :, None]


def undefined(scores: Sequence[np.ndarray]) -> np.ndarray:
    """(M,) bool: the measures that have a NaN score."""
    return np.array([bool(np.isnan(values).any()) for values in scores])


class ExplanationTest(Measure):
    """A measure that takes tokens away and reads the rest anew; subclasses test one text at a time."""

    absent: Absent

    def check(self, subject, dataset) -> None:
        """Raise SubjectError for an absence that the subject cannot read."""
        check_absent(subject, self.absent, self.name)


@register
class RationaleErasure(ExplanationTest):
    """Erasing the tokens that a measure ranks first: sufficiency, comprehensiveness, insertion and deletion curves.

    The rationale of a share s are the ceil(s T) tokens of highest score, at least one: of signed measures those with most
    evidence for the class. Tokens are deleted, not masked, unless `absent` is another way (`subjects.removal.read_parts`
    lists them), and the rest is read anew.

    With p the probability of the class that is predicted for the whole text: p(whole) - p(kept) is sufficiency (small is
    good), p(whole) - p(removed) comprehensiveness (large is good); the same numbers in the order of the shares, between
    p(empty) and p(whole), are the insertion and the deletion curve. `metrics.attention_faithfulness.erasure_curves`
    computes with them. A shortened text is not one of those that the model was trained on: see
    `training.random_erasure`.

    The measures are those of `scores`; without it attention alone. Equal scores are put in a random order, drawn once for
    each text and the same for all measures. Undefined (NaN): a text without tokens; a measure with a NaN score. A text of
    one token has one rationale whatever the measure.

    Source: DeYoung et al. 2020, section 4.2 (sufficiency, comprehensiveness); Petsiuk et al. 2018 (insertion, deletion).
    """

    name, cost, needs = "rationale_erasure", "tokens", frozenset({"classes", "token deletion"})
    columns = {
        "rationale_erasure_measures": Column(("M",), "string", doc="names of the measures whose tokens are erased"),
        "rationale_erasure_shares": Column(
            ("S",), "float64", range=(0.0, 1.0), doc="shares of tokens, rounded up, at least one, that a rationale holds"
        ),
        "rationale_erasure_kept_probs": Column(
            ("M", "S"),
            "float64",
            undefined=UNDEFINED,
            doc="probability, 0..1, of the class predicted for the whole text when only the share ranked first is left",
        ),
        "rationale_erasure_removed_probs": Column(
            ("M", "S"), "float64", undefined=UNDEFINED, doc="the same when the share ranked first is taken away"
        ),
        "rationale_erasure_whole_prob": Column((), "float64", range=(0.0, 1.0), doc="the same for the whole text"),
        "rationale_erasure_empty_prob": Column((), "float64", range=(0.0, 1.0), doc="the same without any token"),
    }

    shares: Shares = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # ERASER's five bins, and all tenths
    absent: Absent = "deleted"

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        scores, own = scores_of(subject, batch, scores), whole(subject, batch)
        parts = []
        for row, name in enumerate(batch["instance_id"]):
            chosen = rationales([values[row] for values in scores.values()], self.shares, generator(seed, name, self.name))
            flat = np.concatenate(chosen)
            parts.append(np.concatenate([flat, ~flat, np.zeros((1, chosen.shape[2]), bool)]))
        rows = []
        for row, probs in enumerate(read_parts(subject, batch, parts, self.absent)):
            predicted = int(own[row].argmax())
            both = probs[:-1, predicted].reshape(2, len(scores), len(self.shares))
            of_text = [values[row] for values in scores.values()]
            both[:, undefined(of_text) | (not len(of_text[0]))] = np.nan
            shares = np.array(self.shares, np.float64)
            rows.append((list(scores), shares, *both, own[row, predicted], probs[-1, predicted]))
        return self.in_columns(subject, rows)


def rationales(scores: Sequence[np.ndarray], shares: Sequence[float], random: np.random.Generator) -> np.ndarray:
    """Which tokens (M,S,T) bool each measure's rationale of each share holds: the share rounded up, at least one token."""
    length = len(scores[0])
    counts = [max(1, math.ceil(share * length - 1e-9)) for share in shares]  # 0.07 x 100 is above 7 in floats
    return first_ranked(scores, counts, random)


OWN_SIZE = 0.0
"""A share that stands for as many tokens as the model itself selects."""


def budget(share: float, length: int) -> int:
    """How many of so many tokens a model of this budget may select."""
    return max(1, round(share * length))


@register
class Selection(ExplanationTest):
    """The prediction from selected tokens alone, and from all others: the model's own selection, and every measure's of the
    same size.

    Every measure is cut to the same number of tokens, read alone and left out, with all classes. A selection of a share s
    are the s T tokens of highest score, rounded (halves to even numbers) and at least one, as many as a model of that budget
    may select (`rationale_samplers.budget_tokens`). A model that selects ("selection") reads the given tokens and no others,
    whatever its selector would choose: a selector that reads the rest anew could choose again. Its own selection is
    among what is read, and each measure's selection of that very number of tokens. Other models read a text without the
    other tokens, which `absent` takes away (`subjects.removal.read_parts`).

    Keeping only the selected words gives the same prediction of a model that selects by construction, so its accuracy from
    the selection alone is its accuracy. The prediction from the complement shows whether what it left out would have done as
    well. A text in which nothing is selected is read without any token, and counted.

    The measures are those of `scores`, attention first; without it attention alone. Equal scores are put in a random order,
    drawn once for each text and the same for all measures. Undefined (NaN): a measure with a NaN score.

    Source: Lei et al. 2016 and Bastings et al. 2019 (selections); DeYoung et al. 2020, section 4.2 (cut to one size).

    K: the selections of one text, M measures times S sizes, those of a measure one after the other.
    """

    name, cost, needs = "selection", "draws", frozenset({"classes", "token deletion"})
    columns = {
        "selection_measures": Column(("K",), "string", doc="whose selection each of K is: names of measures"),
        "selection_shares": Column(
            ("K",),
            "float64",
            range=(0.0, 1.0),
            doc="the share of the tokens that each holds, rounded and at least one token, as a budget is; 0, of a model "
            "that selects: as many as it selects itself, maybe none",
        ),
        "selection_chosen": Column(
            ("K", "T"),
            "bool",
            doc="which tokens each holds, none where the measure is undefined; attention's of the model's own size is what "
            "the model itself selects",
        ),
        "selection_kept_probs": Column(
            ("K", "C"),
            "float64",
            range=(0.0, 1.0),
            undefined="the measure is undefined here",
            doc="class probabilities from selected tokens alone",
        ),
        "selection_removed_probs": Column(
            ("K", "C"),
            "float64",
            range=(0.0, 1.0),
            undefined="the measure is undefined here",
            doc="the same from all other tokens",
        ),
        "selection_probs": Column(
            ("C",),
            "float64",
            distribution=True,
            doc="class probabilities from the tokens that the model itself selects",
            needs=frozenset({"selection"}),
        ),
        "complement_probs": Column(
            ("C",),
            "float64",
            distribution=True,
            doc="the same from all tokens that it does not select, read in their place",
            needs=frozenset({"selection"}),
        ),
    }

    shares: Shares = (0.1, 0.2, 0.3)
    absent: Absent = "deleted"

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        scores, inside = scores_of(subject, batch, scores), subject.attendable(batch)
        selects = "selection" in subject.capabilities
        sizes = (OWN_SIZE, *self.shares) if selects else tuple(self.shares)
        names, all_sizes = np.repeat(list(scores), len(sizes)).tolist(), np.tile(np.array(sizes), len(scores))
        chosen, parts = [], []
        for row, name in enumerate(batch["instance_id"]):
            values = [of_measure[row] for of_measure in scores.values()]
            own = subject.selected(batch)[row][inside[row]].cpu().numpy() if selects else None
            counts = [int(own.sum()) if size == OWN_SIZE else budget(size, len(values[0])) for size in sizes]
            selections = first_ranked(values, counts, generator(seed, name, self.name))
            if own is not None and "attention" in scores:
                selections[list(scores).index("attention"), 0] = own
            flat = selections.reshape(len(names), -1)
            chosen.append(flat & ~np.repeat(undefined(values), len(sizes))[:, None])
            parts.append(np.concatenate([flat, ~flat, *([] if own is None else [own[None], ~own[None]])]))
        if selects:
            probs = [self._read_selected(subject, batch, row, inside[row], part) for row, part in enumerate(parts)]
        else:
            probs = read_parts(subject, batch, parts, self.absent)
        rows = []
        for row, of_text in enumerate(probs):
            both = of_text[: 2 * len(names)].reshape(2, len(names), -1)
            both[:, np.repeat(undefined([values[row] for values in scores.values()]), len(sizes))] = np.nan
            rows.append((names, all_sizes, chosen[row], *both, *(of_text[-2:] if selects else ())))
        return self.in_columns(subject, rows)

    @staticmethod
    def _read_selected(subject, batch, row: int, inside: torch.Tensor, parts: np.ndarray) -> np.ndarray:
        """Class probabilities (V,C) of parts (V,T) of the instance `row`, by a subject that reads a given selection."""
        different, number = _distinct(parts)
        selected = torch.zeros(1, len(different), len(inside), dtype=torch.bool, device=inside.device)
        selected[:, :, inside] = torch.from_numpy(different).to(inside.device)
        text = batch.take(torch.tensor([row], device=inside.device))
        return softmax(subject.read_selected(text, selected)[0].double().cpu().numpy())[number]


@register
class SignViolations(ExplanationTest):
    """Signs of scores against effects: the sign of a measure's first token beside what taking it away does (Liu et al.
    2022).

    The prediction without the token that each measure gives the score of largest size, and that score's sign.

    A sign is violated where a token has a score for the class, and the class is more probable without it, or the other way
    round. Measures without a sign, such as attention, give every token a score for the class. A signed one is
    there twice, with its sign and by its size, whose first token is the same: what its sign is worth is the difference.

    Of equal sizes one is drawn, for each text, the same for all measures. absent: what becomes of the token, see
    `subjects.removal`. The measures are those of `scores`; without it attention alone. Undefined: a text without
    tokens; a measure with a NaN score.

    Source: Liu et al. 2022 (the faithfulness violation test).
    """

    name, cost, needs = "sign_violations", "reading", frozenset({"classes", "token deletion"})
    columns = {
        "sign_violations_measures": Column(("M",), "string", doc="names of the measures whose first tokens are taken away"),
        "sign_violations_signs": Column(
            ("M",),
            "float64",
            range=(-1.0, 1.0),
            undefined=UNDEFINED,
            doc="sign of the score of largest size: 1 for the class, -1 against it, 0 where all scores are 0",
        ),
        "sign_violations_effects": Column(
            ("M",),
            "float64",
            range=(-1.0, 1.0),
            undefined=UNDEFINED,
            doc="probability of the class predicted for the whole text, minus that without the token of this score",
        ),
    }

    absent: Absent = "deleted"

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        scores, own = scores_of(subject, batch, scores), whole(subject, batch)
        signs = np.full((len(own), len(scores)), np.nan)
        effects, parts, defined = np.full_like(signs, np.nan), [], []
        for row, name in enumerate(batch["instance_id"]):
            values = np.stack([np.asarray(of_measure[row], np.float64) for of_measure in scores.values()])
            places = np.flatnonzero(~np.isnan(values).any(1) & (values.shape[1] > 0))
            first = rank(np.abs(values), generator(seed, name, self.name))[places, :1].reshape(-1, 1)
            signs[row, places] = np.sign(np.take_along_axis(values[places], first, 1)[:, 0])
            parts.append(np.arange(values.shape[1]) != first)
            defined.append(places)
        for row, probs in enumerate(read_parts(subject, batch, parts, self.absent)):
            predicted = int(own[row].argmax())
            effects[row, defined[row]] = own[row, predicted] - probs[:, predicted]
        return dict(zip(self.columns, ([list(scores)] * len(own), list(signs), list(effects)), strict=True))


@register
class SoftErasure(Measure):
    """Soft erasure: parts of every token's embedding are erased at random, by the scores of a measure (Zhao & Aletras 2023).

    The prediction when embeddings are thinned out, most where scores are lowest (kept) or highest (removed).

    Scores are brought to 0..1 by their least and largest in the text, q = (x - min) / (max - min). Of token t each element
    of the embedding stays with probability q_t (kept) or 1 - q_t (removed) and is 0 otherwise, independently; markers and a
    second text stay. Nothing is cut at a share, and texts keep their length. Of a signed measure the token with least
    evidence for the class, or most against it, has q = 0. All measures share the random numbers of a draw, and what is kept
    in a draw is just what is not removed in it.

    The numbers are for `normalised_sufficiency` and `normalised_comprehensiveness` of
    `metrics.attention_faithfulness.erasure_curves`, with the text of zero embeddings as the empty one. The measures are
    those of `scores`; without it attention alone. Undefined (NaN): constant scores, as of a text of one token; a NaN
    score; a text without tokens.

    Source: Zhao & Aletras 2023, section 3; of its ways to bring scores to 0..1, the one in the paper.
    """

    name, cost, needs = "soft_erasure", "draws", frozenset({"classes", "embeddings"})
    columns = {
        "soft_erasure_measures": Column(("M",), "string", doc="names of the measures by which embeddings are erased"),
        "soft_erasure_kept_probs": Column(
            ("M", "K"),
            "float64",
            undefined="the scores are constant or undefined, or the text is empty",
            doc="probability, 0..1, of the class predicted for the whole text when an element of a token's embedding stays "
            "with the token's score, of each draw",
        ),
        "soft_erasure_removed_probs": Column(
            ("M", "K"),
            "float64",
            undefined="the scores are constant or undefined, or the text is empty",
            doc="the same when an element stays with 1 - the token's score",
        ),
        "soft_erasure_whole_prob": Column((), "float64", range=(0.0, 1.0), doc="the same for the whole text"),
        "soft_erasure_empty_prob": Column((), "float64", range=(0.0, 1.0), doc="the same when each token's embedding is 0"),
    }

    draws: Draws = 10

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        scores, own = scores_of(subject, batch, scores), whole(subject, batch)
        items = removal.item_places(subject, batch).cpu().numpy()
        rows = []
        for row, name in enumerate(batch["instance_id"]):
            shares = np.stack([_between_0_and_1(values[row]) for values in scores.values()])
            predicted = int(own[row].argmax())
            both = np.full((2, len(scores), self.draws), np.nan)
            defined = np.flatnonzero(~np.isnan(shares).any(1) & (shares.shape[1] > 0))
            *both[:, defined], empty = self._read_thinned(
                subject, batch.alone(row), items[row], shares[defined], generator(seed, name, self.name), predicted
            )
            rows.append((list(scores), *both, own[row, predicted], empty))
        return self.in_columns(subject, rows)

    def _read_thinned(self, subject, text, items, shares, random, predicted):
        """Probabilities (M,K) kept and (M,K) removed, and of zero embeddings (), of one text with shares (M,T)."""
        length = text["input_ids"].shape[1]
        embedded = subject.embed(text)[0]
        inside = items[:length] >= 0
        positions = torch.from_numpy(np.flatnonzero(inside)).to(embedded.device)
        numbers = random.random((self.draws, len(positions), embedded.shape[1]), np.float32)
        drawn = torch.from_numpy(numbers).to(embedded.device)
        likely = torch.from_numpy(shares[:, items[:length][inside]]).to(drawn)

        def read(stays: torch.Tensor) -> np.ndarray:
            """Probability of the predicted class (V,) where the elements (V,P,E) of the tokens' P positions stay."""
            thinned = embedded.expand(len(stays), -1, -1).clone()
            thinned[:, positions] *= stays.to(thinned.dtype)
            copies = text.take(torch.zeros(len(stays), dtype=torch.int64, device=embedded.device))
            return subject.predict(copies, thinned).double().softmax(-1)[:, predicted].cpu().numpy()

        count, step = len(shares) * self.draws, max(1, removal.TOKENS_AT_ONCE // max(1, length))
        probs = np.empty((2, count))
        for part in torch.arange(count, device=drawn.device).split(step) if count else ():
            stays = drawn[part % self.draws] < likely[part // self.draws].unsqueeze(-1)
            probs[:, part.cpu().numpy()] = read(stays), read(~stays)
        (empty,) = read(torch.zeros_like(drawn[:1]))
        return *probs.reshape(2, len(shares), self.draws), empty


def _between_0_and_1(values: np.ndarray) -> np.ndarray:
    """Scores (T,) by their least and largest, NaN where they are one value."""
    values = np.asarray(values, np.float64)
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return np.divide(values - low, high - low, out=np.full(len(values), np.nan), where=high > low)

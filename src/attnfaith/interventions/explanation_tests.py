"""Tests of explanations: what a model predicts from the tokens that measures rank first, and from the text without them.

The measures under test are those of `scores`, {measure: one array (T,) an instance}; without it attention alone. Equal
scores are in a random order, the same for all measures of a text. A measure with a NaN score is undefined for that text.

Shapes: B instances, L input positions, T items of attention (tokens, or sentences), V parts of a text, M measures, S shares
or sizes, K draws, C classes, E embedding.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from attnfaith.interventions.targets import shown_attention, softmax
from attnfaith.measurement.options import Absent, Count, Draws, Shares
from attnfaith.measurement.registry import Measure, register
from attnfaith.models.rationale_samplers import budget_tokens
from attnfaith.record import ABSOLUTE, Column
from attnfaith.subjects import Batch, Subject, protocol, require, whole_logits
from attnfaith.subjects.protocol import log_odds
from attnfaith.support.draws import generator
from attnfaith.verdict import SHARES


UNDEFINED = "the measure is undefined here, or the text is empty"
CONSTANT = "the scores are constant or undefined, or the text is empty"
PROB = {"dtype": "float64", "range": (0.0, 1.0)}
CURVE = {"axes": ("M", "S"), "dtype": "float64", "undefined": UNDEFINED}
SIGNED = {"axes": ("M",), "dtype": "float64", "range": (-1.0, 1.0), "undefined": UNDEFINED}
THINNED = {"axes": ("M", "K"), "dtype": "float64", "undefined": CONSTANT}


def whole(subject: Subject, batch: Batch) -> np.ndarray:
    """Return class probabilities (B,C) in float64 of the texts as they are."""
    return whole_logits(subject, batch).double().softmax(-1).cpu().numpy()


def read_parts(subject: Subject, batch: Batch, parts: Sequence[np.ndarray], absent: str) -> list[np.ndarray]:
    """Return class probabilities (V,C) in float64 of parts of each text, see `protocol.read_parts`."""
    return [softmax(logits) for logits in protocol.read_parts(subject, batch, parts, absent)]


def rank(scores: Sequence[np.ndarray], random: np.random.Generator) -> np.ndarray:
    """Return orders (M,T) of decreasing scores (T,); equal scores in one random order for all measures."""
    tie_breaker = random.permutation(len(scores[0]))
    return np.stack([np.lexsort((tie_breaker, -np.asarray(values, np.float64))) for values in scores])


def first_ranked(scores: Sequence[np.ndarray], counts: Sequence[int], random: np.random.Generator) -> np.ndarray:
    """Return which tokens (M,S,T) bool are the `counts` (S,) first of each measure."""
    return np.argsort(rank(scores, random), 1)[:, None] < np.array(counts)[None, :, None]


def rationales(scores: Sequence[np.ndarray], shares: Sequence[float], random: np.random.Generator) -> np.ndarray:
    """Return which tokens (M,S,T) bool each measure's rationale of each share holds: the share rounded up, at least one."""
    counts = [max(1, math.ceil(share * len(scores[0]) - 1e-9)) for share in shares]  # 0.07 x 100 is above 7 in floats
    return first_ranked(scores, counts, random)


class ScoreTest(Measure):
    """A measure that tests the scores of others."""

    def scored(self, subject, batch, scores, seed: int) -> tuple[list[str], list[np.ndarray], list[np.random.Generator]]:
        """Return the names (M,) of the measures under test, and the scores (M,T) and random numbers of each text."""
        scores = {"attention": shown_attention(subject, batch)} if scores is None else scores
        texts = [np.array(values, np.float64) for values in zip(*scores.values(), strict=True)]
        return [*scores], texts, [generator(seed, name, self.name) for name in batch["instance_id"]]


class ExplanationTest(ScoreTest):
    """A measure that takes tokens away, in the way `absent`, and reads the rest anew."""

    absent: Absent

    def check(self, subject, dataset) -> None:
        """Raise SubjectError for an absence that the subject cannot read."""
        require(subject, {protocol.ABSENT[self.absent]}, f"{self.name} with absent='{self.absent}'")


@register
class RationaleErasure(ExplanationTest):
    """Erasing the tokens that a measure ranks first: sufficiency, comprehensiveness, insertion and deletion curves.

    The rationale of a share s are the ceil(s T) tokens of highest score, at least one: of signed measures those with most
    evidence for the class. `absent` takes tokens away (`subjects.protocol`), and the rest is read anew. With p the
    probability of the class predicted for the whole text, p(whole) - p(kept) is sufficiency (small is good) and p(whole) -
    p(removed) comprehensiveness (large is good); in the order of the shares they are the insertion and the deletion curve.

    Source: DeYoung et al. 2020, section 4.2 (sufficiency, comprehensiveness); Petsiuk et al. 2018 (insertion, deletion).
    """

    name, cost, needs = "rationale_erasure", "tokens", frozenset({"classes", "token deletion"})
    columns = {
        "rationale_erasure_measures": Column(("M",), "string", doc="names of the measures whose tokens are erased"),
        "rationale_erasure_shares": Column(("S",), doc="shares of tokens in a rationale", **PROB),
        "rationale_erasure_kept_probs": Column(doc="probability of the predicted class from the rationale alone", **CURVE),
        "rationale_erasure_removed_probs": Column(doc="the same from the text without the rationale", **CURVE),
        "rationale_erasure_whole_prob": Column(doc="the same from the whole text", **PROB),
        "rationale_erasure_empty_prob": Column(doc="the same without any token", **PROB),
    }

    shares: Shares = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # ERASER's five bins, and all tenths
    absent: Absent = "deleted"

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        names, texts, random = self.scored(subject, batch, scores, seed)
        parts, rows = [], []
        for values, numbers in zip(texts, random, strict=True):
            chosen = np.concatenate(rationales(values, self.shares, numbers))
            parts.append(np.concatenate([chosen, ~chosen, np.zeros((1, values.shape[1]), bool)]))
        results = read_parts(subject, batch, parts, self.absent)
        for values, probs, before in zip(texts, results, whole(subject, batch), strict=True):
            predicted = int(before.argmax())
            curves = probs[:-1, predicted].reshape(2, len(names), len(self.shares))
            curves[:, np.isnan(values).any(1) | (not values.shape[1])] = np.nan
            rows.append((names, np.array(self.shares, np.float64), *curves, before[predicted], probs[-1, predicted]))
        return self.in_columns(subject, rows)


REFERENCES = (f"{ABSOLUTE}integrated_gradients", "leave_one_out")
"""What attention is held against in `comprehensiveness`: the first of these that is measured beside it."""
LOSS = {"dtype": "float64", "unit": "log-odds", "undefined": UNDEFINED}
MARKED = LOSS | {"undefined": "the tokens that decide are not marked, or all are"}


@register
class Comprehensiveness(ExplanationTest):
    """Log-odds lost without the tokens that attention ranks first, beside one importance measure and random orders.

    The loss of an order is log-odds(whole) - log-odds(rest), averaged over `shares`: the rest is the text without the
    ceil(s T) tokens, at least one, that come first; log-odds are those of the class predicted for the whole text. The
    importance measure is the size of integrated gradients, or leave-one-out where these are not measured. The random loss is
    the mean over `draws` random orders. Where the data mark the tokens that decide (`rationale`), all of them are deleted
    too, and as many at random. The verdict reads it.

    Source: DeYoung et al. 2020, section 4.2 (comprehensiveness), with log-odds in place of probabilities, which saturate.
    """

    name, cost, needs = "comprehensiveness", "tokens", frozenset({"classes", "token deletion"})
    columns = {
        "comprehensiveness_orders": Column(("M",), "string", doc="orders of the tokens: attention, then the measure beside"),
        "comprehensiveness_losses": Column(("M",), doc="log-odds lost without the first tokens of an order", **LOSS),
        "comprehensiveness_random": Column(doc="the same in random orders, mean over draws and shares", **LOSS),
        "comprehensiveness_evidence": Column(doc="log-odds lost without the tokens that are marked as deciding", **MARKED),
        "comprehensiveness_evidence_random": Column(doc="the same without as many random tokens, mean over draws", **MARKED),
    }

    shares: Shares = SHARES
    draws: Draws = 5
    absent: Absent = "deleted"

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        scores = {"attention": shown_attention(subject, batch), **(scores or {})}
        scores = {name: scores[name] for name in ("attention", *[name for name in REFERENCES if name in scores][:1])}
        names, texts, random = self.scored(subject, batch, scores, seed)
        marks = batch.get("rationale", [()] * len(texts))
        removed = [self._removed(*text) for text in zip(texts, map(np.asarray, marks), random, strict=True)]
        rows, parts = [], protocol.read_parts(subject, batch, [~sets for sets in removed], self.absent)
        for values, logits in zip(texts, map(torch.from_numpy, parts), strict=True):
            odds = log_odds(logits, logits[:1].argmax(-1).expand(len(logits))).numpy()
            ends = np.cumsum([len(names) * len(self.shares), self.draws * len(self.shares)])
            ordered, shuffled, marked = np.split(odds[0] - odds[1:], ends)
            empty, losses = not values.shape[1], ordered.reshape(len(names), -1).mean(1)
            losses[np.isnan(values).any(1) | empty] = np.nan
            evidence = (marked[0], marked[1:].mean()) if len(marked) else (np.nan, np.nan)
            rows.append((names, losses, np.nan if empty else shuffled.mean(), *evidence))
        return self.in_columns(subject, rows)

    def _removed(self, orders: np.ndarray, marks: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Sets (V,T) bool of removed tokens: none; M x S of the orders; K x S at random; the marked ones, and K as many."""
        length, marked = orders.shape[1], marks > 0
        draws = random.random((self.draws, length))
        sets = [np.zeros((1, length), bool), *rationales([*orders, *draws], self.shares, random)]
        if len(marks) == length and 0 < marked.sum() < length:
            sets += [marked[None], first_ranked(draws, [int(marked.sum())], random)[:, 0]]
        return np.concatenate(sets)


SELECTED = PROB | {"undefined": "the measure is undefined here"}
OWN = {"dtype": "float64", "distribution": True, "needs": frozenset({"selection"})}
OWN_SIZE = 0.0
"""A share that stands for as many tokens as the model itself selects."""


@register
class Selection(ExplanationTest):
    """The prediction from selected tokens alone, and from all others: of the model's own selection, and of every measure's.

    A measure's selection of a share s are the s T tokens of highest score, as many as a model of that budget may select
    (`rationale_samplers.budget_tokens`). A model that selects ("selection") reads these tokens and no others; each measure
    is then also cut to the size of its own selection. Other models read a text without the other tokens, which `absent`
    takes away. A model that selects predicts the same from its selection by construction, so look at the prediction from the
    complement: it shows whether what was left out would have done as well.

    Source: Lei et al. 2016 and Bastings et al. 2019 (selections); DeYoung et al. 2020, section 4.2 (cut to one size).

    K: the selections of one text, M measures times S sizes, those of a measure one after the other.
    """

    name, cost, needs = "selection", "draws", frozenset({"classes", "token deletion"})
    columns = {
        "selection_measures": Column(("K",), "string", doc="whose selection each of K is: names of measures"),
        "selection_shares": Column(("K",), doc="share of tokens in each; 0: as many as the model selects itself", **PROB),
        "selection_chosen": Column(("K", "T"), "bool", doc="which tokens each holds, none where the measure is undefined"),
        "selection_kept_probs": Column(("K", "C"), doc="class probabilities from selected tokens alone", **SELECTED),
        "selection_removed_probs": Column(("K", "C"), doc="class probabilities from all other tokens", **SELECTED),
        "selection_probs": Column(("C",), doc="class probabilities from the tokens that the model itself selects", **OWN),
        "complement_probs": Column(("C",), doc="the same from all tokens that it does not select, in their place", **OWN),
    }

    shares: Shares = (0.1, 0.2, 0.3)
    absent: Absent = "deleted"

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        measures, texts, random = self.scored(subject, batch, scores, seed)
        selects, rows = "selection" in subject.capabilities, []
        sizes = (OWN_SIZE, *self.shares) if selects else tuple(self.shares)
        names, all_sizes = np.repeat(measures, len(sizes)).tolist(), np.tile(np.array(sizes), len(measures))
        for row, (values, numbers, inside) in enumerate(zip(texts, random, subject.attendable(batch), strict=True)):
            own = subject.selected(batch)[row][inside].cpu().numpy() if selects else None
            counts = [int(own.sum()) if size == OWN_SIZE else int(budget_tokens(inside, size)) for size in sizes]
            selections = first_ranked(values, counts, numbers)
            if selects and "attention" in measures:
                selections[measures.index("attention"), 0] = own
            selections = selections.reshape(len(names), -1)
            parts = np.concatenate([selections, ~selections, *([own[None], ~own[None]] if selects else [])])
            text = batch.take(torch.tensor([row], device=inside.device))
            if selects:
                selected = inside.new_zeros(1, len(parts), len(inside))
                selected[:, :, inside] = torch.from_numpy(parts).to(inside.device)
                probs = softmax(subject.read_selected(text, selected)[0].double().cpu().numpy())
            else:
                (probs,) = read_parts(subject, text, [parts], self.absent)
            by_part, defined = probs[: 2 * len(names)].reshape(2, len(names), -1), ~np.isnan(values).any(1)
            defined = np.repeat(defined, len(sizes))
            by_part[:, ~defined] = np.nan
            rows.append((names, all_sizes, selections & defined[:, None], *by_part, *(probs[-2:] if selects else ())))
        return self.in_columns(subject, rows)


@register
class SignViolations(ExplanationTest):
    """Signs of scores against effects: the sign of a measure's first token beside what taking it away does.

    The first token has the score of largest size; of equal ones one is drawn, the same for all measures. Its sign is
    violated where the score is for the class, and the class is more probable without it, or the other way round. Measures
    without a sign, such as attention, give every token a score for the class.

    Source: Liu et al. 2022 (the faithfulness violation test).
    """

    name, cost, needs = "sign_violations", "reading", frozenset({"classes", "token deletion"})
    columns = {
        "sign_violations_measures": Column(("M",), "string", doc="names of the measures whose first tokens are taken away"),
        "sign_violations_signs": Column(doc="sign of that score: 1 for the class, -1 against it, 0 if all are 0", **SIGNED),
        "sign_violations_effects": Column(doc="fall of the predicted class's probability without this token", **SIGNED),
    }

    absent: Absent = "deleted"

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        names, texts, random = self.scored(subject, batch, scores, seed)
        rows, parts = [], []
        for values, numbers in zip(texts, random, strict=True):
            defined = ~np.isnan(values).any(1) & (values.shape[1] > 0)
            first = rank(np.abs(values), numbers)[defined, :1].reshape(-1, 1)
            signs, effects = np.full((2, len(names)), np.nan)
            signs[defined] = np.sign(np.take_along_axis(values[defined], first, 1)[:, 0])
            rows.append((names, signs, effects))
            parts.append(np.arange(values.shape[1]) != first)
        probs = read_parts(subject, batch, parts, self.absent)
        for (_, signs, effects), without, own in zip(rows, probs, whole(subject, batch), strict=True):
            effects[~np.isnan(signs)] = own.max() - without[:, own.argmax()]
        return self.in_columns(subject, rows)


@register
class SoftErasure(ScoreTest):
    """Soft erasure: parts of every token's embedding are erased at random, by the scores of a measure (Zhao & Aletras 2023).

    Scores are brought to 0..1 by their least and largest in the text, q = (x - min) / (max - min). Of token t each element
    of the embedding stays with probability q_t (kept) or 1 - q_t (removed) and is 0 otherwise; markers, a second text and
    the length stay. All measures share the random numbers of a draw. `metrics.attention_faithfulness.erasure_curves`
    normalises the numbers, with the text of zero embeddings as the empty one.

    Source: Zhao & Aletras 2023, section 3; of its ways to bring scores to 0..1, the one in the paper.
    """

    name, cost, needs = "soft_erasure", "draws", frozenset({"classes", "embeddings"})
    columns = {
        "soft_erasure_measures": Column(("M",), "string", doc="names of the measures by which embeddings are erased"),
        "soft_erasure_kept_probs": Column(doc="probability of the class where an element stays with the score", **THINNED),
        "soft_erasure_removed_probs": Column(doc="the same where an element stays with 1 - the token's score", **THINNED),
        "soft_erasure_whole_prob": Column(doc="the same for the whole text", **PROB),
        "soft_erasure_empty_prob": Column(doc="the same when each token's embedding is 0", **PROB),
    }

    draws: Draws = 10

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        names, texts, random = self.scored(subject, batch, scores, seed)
        rows = []
        for row, (values, own) in enumerate(zip(texts, whole(subject, batch), strict=True)):
            low, high = values.min(1, keepdims=True, initial=np.inf), values.max(1, keepdims=True, initial=-np.inf)
            shares = np.divide(values - low, high - low, out=np.full(values.shape, np.nan), where=high > low)
            probs, predicted = np.full((2, len(names), self.draws), np.nan), int(own.argmax())
            defined = ~np.isnan(shares).any(1) & (shares.shape[1] > 0)
            thinned = self._read_thinned(subject, batch.alone(row), shares[defined], random[row], predicted)
            probs[:, defined], empty = thinned
            rows.append((names, *probs, own[predicted], empty))
        return self.in_columns(subject, rows)

    def _read_thinned(self, subject, text, shares, random, predicted):
        """Probabilities (2,M,K) kept and removed, and of zero embeddings (), of one text with shares (M,T)."""
        embedded, items = subject.embed(text)[0], protocol.item_places(subject, text)[0]
        inside = items >= 0
        numbers = random.random((self.draws, int(inside.sum()), embedded.shape[1]), np.float32)
        drawn = torch.from_numpy(numbers).to(embedded.device)
        likely = torch.from_numpy(shares).to(drawn)[:, items[inside]]

        def read(stays: torch.Tensor) -> np.ndarray:  # (V,P,E) bool: the elements of the tokens' P positions that stay
            thinned = embedded.expand(len(stays), -1, -1).clone()
            thinned[:, inside] *= stays.to(thinned.dtype)
            copies = text.take(torch.zeros(len(stays), dtype=torch.int64, device=embedded.device))
            return subject.predict(copies, thinned).double().softmax(-1)[:, predicted].cpu().numpy()

        pairs, probs = torch.arange(len(shares) * self.draws, device=drawn.device), [np.empty((2, 0))]
        for some in pairs.split(max(1, protocol.TOKENS_AT_ONCE // len(items))) if len(pairs) else ():
            stays = drawn[some % self.draws] < likely[some // self.draws].unsqueeze(-1)
            probs.append(np.stack([read(stays), read(~stays)]))
        (empty,) = read(torch.zeros_like(drawn[:1]))
        return np.concatenate(probs, 1).reshape(2, len(shares), self.draws), empty


MOST_EXACT = 16  # tokens: 65,536 sets
BEAM_TOKENS = 64  # of the longest text in which a beam looks for orders
ExactTokens = Annotated[int, Field(strict=True, ge=0, le=MOST_EXACT)]
Read = Callable[[np.ndarray], np.ndarray]
"""From sets (V,T) bool of removed tokens to the probability (V,) of a class without them."""
FEW = "the text has no token"
UNRANKED = f"a score is undefined, or {FEW}"
AOPC = {"dtype": "float64", "range": (-1.0, 1.0)}


@register
class AOPCLimits(ExplanationTest):
    """How far removing a text's tokens can lower a prediction, in the best and in the worst order, and where measures lie.

    AOPC of an order of the T tokens is the mean, over k = 1..T, of p(whole) - p(without its first k tokens), p the
    probability of the class predicted for the whole text. Models and texts differ in how high it can get, so that an AOPC
    alone means little: (AOPC - low) / (high - low) is 0 for the worst and 1 for the best order.

    exact_tokens: up to so many tokens all 2^T subsets are read, and the limits over all T! orders are exact. Beyond, a beam
    of `beam` sets looks for the best and the worst order, in texts of up to 64 tokens, and the orders of the measures count.

    Source: Edin et al. 2025, Normalized AOPC (ACL 2025); AOPC: Samek et al. 2017.
    """

    name, cost, needs = "aopc_limits", "draws", frozenset({"classes", "token deletion"})
    columns = {
        "aopc_limits_measures": Column(("M",), "string", doc="names of the measures whose orders are judged"),
        "aopc_limits_aopc": Column(("M",), undefined=UNRANKED, doc="mean fall of the probability in an order", **AOPC),
        "aopc_limits_low": Column(undefined=FEW, doc="least AOPC of any order that was met", **AOPC),
        "aopc_limits_high": Column(undefined=FEW, doc="greatest AOPC of any order that was met", **AOPC),
        "aopc_limits_certainty": Column(dtype="category", doc="exact; met: others may go further; undefined: no token"),
    }
    most_tokens = 4000  # each two of them have a number

    absent: Absent = "deleted"
    exact_tokens: ExactTokens = 12
    beam: Count = 5

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        names, texts, random = self.scored(subject, batch, scores, seed)
        rows = []
        for row, (values, predicted) in enumerate(zip(texts, whole(subject, batch).argmax(1), strict=True)):
            text, numbers = batch.alone(row), (np.full(len(names), np.nan), np.nan, np.nan, "undefined")
            if values.shape[1]:

                def read(sets, text=text, predicted=predicted):
                    return read_parts(subject, text, [~sets], self.absent)[0][:, predicted]

                aopc, *limits = self.limits(rank(values, random[row]), read)
                numbers = np.where(np.isnan(values).any(1), np.nan, aopc), *limits
            rows.append((names, *numbers))
        return self.in_columns(subject, rows)

    def limits(self, orders: np.ndarray, read: Read) -> tuple[np.ndarray, float, float, str]:
        """Return AOPC (M,) of orders (M,T), T at least 1, the least and the greatest that was met, and the certainty."""
        length = orders.shape[1]
        p_whole = read(np.zeros((1, length), bool))[0]
        along = read((np.argsort(orders, 1)[:, None] <= np.arange(length)[:, None]).reshape(-1, length))
        aopc = p_whole - along.reshape(len(orders), length).mean(1)
        low, high = min(aopc), max(aopc)  # the sums below are the same ones in another order of addition
        exact = length <= self.exact_tokens
        if exact or length <= BEAM_TOKENS:
            least, most = _chains(read, length) if exact else (_beam(read, length, self.beam, sign) for sign in (1, -1))
            low, high = min(p_whole - most / length, low), max(p_whole - least / length, high)
        return aopc, low, high, "exact" if exact else "met"


# An order is a chain of growing sets of removed tokens, so a limit over all T! orders is one over chains of 2^T sets.
def _chains(read: Read, length: int) -> tuple[float, float]:
    """The least and the greatest sum of p over a chain from one token to all."""
    masks = np.arange(2**length)  # token t is in set number m where bit t of m is 1
    p, sizes = read((masks[:, None] >> np.arange(length) & 1).astype(bool)), np.bitwise_count(masks)
    least, most = np.full(len(p), np.inf), np.full(len(p), -np.inf)
    least[0] = most[0] = 0.0
    for size in range(1, length + 1):
        own = masks[sizes == size]
        for token in range(length):
            having = own[own >> token & 1 == 1]
            lacking = having ^ (1 << token)  # the same sets without this token: a chain goes through one of these
            least[having] = np.minimum(least[having], least[lacking])
            most[having] = np.maximum(most[having], most[lacking])
        least[own] += p[own]
        most[own] += p[own]
    return least[-1], most[-1]


def _beam(read: Read, length: int, beam: int, sign: int) -> float:
    """The least (sign 1) or greatest (sign -1) sum of p over a chain that a beam meets."""
    sets, sums = np.zeros((1, length), bool), np.zeros(1)
    for _ in range(length):
        state, token = np.nonzero(~sets)
        grown, before = sets[state], sums[state]
        grown[np.arange(len(grown)), token] = True
        best_first = np.argsort(sign * before, kind="stable")
        _, first = np.unique(np.packbits(grown[best_first], axis=1), axis=0, return_index=True)
        different = best_first[np.sort(first)]
        sums = before[different] + read(grown[different])
        chosen = np.argsort(sign * sums, kind="stable")[:beam]
        sets, sums = grown[different][chosen], sums[chosen]
    return sums[0]

"""Diagnostics: what attention lies on, what it weighs, and what a model does without some tokens.

Impermissible are, after Pruthi et al. 2020, the tokens that an honest model needs for its task and that one which is trained
to deceive hides from attention.

Shapes: B instances, L input positions, T places of attention, H heads of all layers that are shown, G groups, C classes.
"""

import unicodedata

import numpy as np
import torch

from attnfaith.data.subwords import words_of
from attnfaith.interventions.explanation_tests import ExplanationTest, read_parts
from attnfaith.interventions.targets import read_out
from attnfaith.measurement.options import Absent, StateLayer
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import Batch, Subject, SubjectError
from attnfaith.subjects.protocol import marked_places


IMPERMISSIBLE = "impermissible"
MAPS = "attention maps"
OF_MAPS = frozenset({MAPS})
SMALLEST = 1e-6  # least length of a vector in a cosine, as in the authors' code
FEW = "below two tokens"
NONE_OR_ALL = "no token of the text is impermissible, or all are"
SHARE = {"dtype": "float64", "range": (0.0, 1.0), "undefined": NONE_OR_ALL}
MASS = {"axes": ("G",), **SHARE, "undefined": "no token of the text is in the group, or all are"}
LACKS = (
    "'{}' needs marks of impermissible tokens: give a column impermissible, a 0 or 1 for each word (in a batch, for each "
    "position), or the words themselves as data.impermissible_words"
)


class _OfImpermissible(Measure):
    """A measure of impermissible tokens, which the data mark. Undefined for a text without them, or with no others."""

    def check(self, subject, dataset) -> None:
        """Raise SubjectError for encoded instances that do not mark impermissible tokens."""
        super().check(subject, dataset)
        if dataset is not None and IMPERMISSIBLE not in dataset.column_names:
            raise SubjectError(LACKS.format(self.name))


def impermissible(subject: Subject, batch: Batch, name: str) -> torch.Tensor:
    """Return (B,T) bool: the places of attention that hold an impermissible token. Raises SubjectError without marks."""
    if batch.get(IMPERMISSIBLE) is None:
        raise SubjectError(LACKS.format(name))
    return marked_places(subject, batch, batch[IMPERMISSIBLE])


@register
class PermissibleOnly(_OfImpermissible, ExplanationTest):
    """The prediction without the impermissible tokens: whether the model needs them, whatever its attention shows.

    They are taken away in the way `absent` (of a model over sentences the sentences that hold one). Where predictions get
    worse the model needs them, and attention that hides them deceives; some of the fall is due to the shortened text.

    Source: Pruthi et al. 2020, table 3 ("I used: no"), where models are trained without them.
    """

    name, cost, needs = "permissible_only", "reading", frozenset({"classes", "token deletion"})
    columns = {
        "permissible_only_probs": Column(("C",), "float64", undefined=NONE_OR_ALL, doc="class probabilities without them")
    }

    absent: Absent = "deleted"

    def __call__(self, subject, batch) -> dict[str, list]:
        marks, mask = impermissible(subject, batch, self.name), subject.attendable(batch)
        parts = [~marked[inside].cpu().numpy()[None] for marked, inside in zip(marks, mask, strict=True)]
        parts = [part[: int(part.any() and not part.all())] for part in parts]
        nothing = np.full(subject.num_labels, np.nan)
        probs = read_parts(subject, batch, parts, self.absent)
        return {"permissible_only_probs": [values[0] if len(values) else nothing for values in probs]}


@register
class ValueNormShare(_OfImpermissible):
    """Impermissible tokens by the length of their vectors: what is hidden from attention may be long where it is summed.

    sum over impermissible i of ||v_i||_2, over the sum of all ||v_i||_2. v_i is what attention weighs: the state of a token
    or sentence; in a classifier of transformers the value of a head, before the projection, in the layers or the head
    that are shown, markers included as in the authors' code. No weight enters: compare it with `group_mass`.

    Source: the code of Pruthi et al. 2020 (quantify_norms; value_norm_fraction).
    """

    name, needs = "value_norm_share", frozenset({"weighed vectors"})
    columns = {
        "value_norm_share": Column(doc="lengths of impermissible tokens' vectors over all; mean over heads", **SHARE),
        "value_norm_share_head_max": Column(doc="the same in the head where it is largest", needs=OF_MAPS, **SHARE),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        marks, norms = impermissible(subject, batch, self.name), subject.value_norms(batch)
        defined = marks.any(1) & (subject.attendable(batch) & ~marks).any(1)
        shares = (norms * marks.unsqueeze(1)).sum(2) / norms.sum(2)  # (B,N); 0 / 0 is NaN
        shares = torch.where(defined[:, None], shares, torch.nan)
        return dict(zip(self.columns_for(subject), (shares.mean(1).tolist(), shares.amax(1).tolist()), strict=False))


@register
class MarkerAttention(Measure):
    """Attention on markers: the share of what is shown that lies on no word of the text; 1 for a text without tokens.

    Source: Clark et al. 2019, What Does BERT Look At?, section 3.2, who find most of it on separators.
    """

    name, needs = "marker_attention", OF_MAPS
    columns = {"marker_attention": Column(dtype="float64", range=(0.0, 1.0), doc="share on markers and attention sinks")}

    def __call__(self, subject, batch) -> dict[str, list]:
        return {"marker_attention": subject.reduced(batch)[1].clamp(0, 1).tolist()}


@register
class GroupMass(Measure):
    """How much of attention lies on groups of tokens: impermissible ones, punctuation, markers.

    The groups, which may overlap: impermissible, what the data mark so (the paper's attention mass, a . m); punctuation,
    tokens of words that are punctuation alone; markers, of a stack of layers what is no token of the text, such as [CLS].
    There a mass is a share of the whole rows; divided by 1 - that of markers it is one of the text. A sentence is in a group
    where one of its words is impermissible, or all is punctuation. group_mass_head_max is the paper's "max".

    Source: Pruthi et al. 2020, section 3 (attention mass); Mohankumar et al. 2020, section 5.4 (punctuation).
    """

    name = "group_mass"
    columns = {
        "group_mass_names": Column(("G",), "string", doc="names of the groups"),
        "group_mass": Column(doc="sum of the weights on the group's tokens; of a stack of layers of the whole rows", **MASS),
        "group_mass_tokens": Column(("G",), "int64", doc="how many tokens of the text are in the group"),
        "group_mass_head_max": Column(doc="the same in the head where it is largest", needs=OF_MAPS, **MASS),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        mask, weights, groups = subject.attendable(batch), subject.attention(batch).double(), {}
        if batch.get(IMPERMISSIBLE) is not None:
            groups[IMPERMISSIBLE] = impermissible(subject, batch, self.name)
        if batch.get("tokens") is not None:
            owners = batch.get("word_of_token") or [range(len(tokens)) for tokens in batch["tokens"]]
            texts = zip(batch["tokens"], owners, strict=True)
            marks = mask.new_tensor([mark for text in texts for mark in _punctuation(*text)])
            groups["punctuation"] = torch.zeros_like(mask).masked_scatter(mask, marks)
        maps = MAPS in subject.capabilities
        if maps:
            markers = subject.reduced(batch)[1]
            weights = weights * (1 - markers).unsqueeze(1)
            groups["markers"] = batch["attention_mask"].bool() & ~mask
        inside = torch.stack(list(groups.values()), 1) if groups else mask.new_zeros(len(mask), 0, mask.shape[1])
        counts = inside.sum(2)
        defined = (counts > 0) & ((inside & mask.unsqueeze(1)).sum(2) < mask.sum(1, keepdim=True))
        masses = [torch.einsum("bt,bgt->bg", weights, inside.double())]
        if maps:
            rows = subject.matter(batch).double()
            rows, read = rows / rows.sum(1, keepdim=True), subject.read(batch, keep=subject.shown_maps).maps
            heads = torch.cat([torch.einsum("bq,bhql->bhl", rows, layer.weights.double()) for layer in read], 1)
            masses.append(torch.einsum("bht,bgt->bhg", heads, inside.double()).amax(1))
            masses[0][:, -1], masses[1][:, -1] = markers, 1 - (heads * mask.unsqueeze(1)).sum(2).amin(1)
        mass, *head_max = (torch.where(defined, mass.clamp(0, 1), torch.nan).cpu().numpy() for mass in masses)
        return self.in_columns(subject, zip([[*groups]] * len(mask), mass, counts.cpu().numpy(), *head_max, strict=True))


def _punctuation(tokens, owners) -> list[bool]:
    """Whether the word that each token of a text is part of is punctuation alone (Unicode category P)."""
    words, numbers = words_of(tokens, owners)
    marks = [{unicodedata.category(letter)[0] for letter in word if not letter.isspace()} == {"P"} for word in words]
    return [marks[number] for number in numbers]


@register
class Conicity(Measure):
    """Conicity of states: how narrow the cone is that the states of a text's tokens lie in.

    The mean over tokens i of cos(h_i, (h_1 + .. + h_n) / n): 1 where all states point one way, so that other weights give
    nearly the same sum, 0 where they sum to zero; n orthogonal states of one length have 1 / sqrt(n), so short texts have
    more of it. A state of zeros counts as 0. `conicity_absolute` takes |cos|, as the code of Mohankumar et al. does;
    `conicity_signed` takes cos, as their formula is written. States are those that attention is over; of a stack of layers
    those of `layer`, "last" or a number from 0 on, before a norm behind the whole stack.

    Source: Mohankumar et al. 2020, section 3.1.
    """

    name, needs = "conicity", frozenset({"token states"})
    columns = {
        "conicity_absolute": Column((), "float64", range=(0.0, 1.0), undefined=FEW, doc="mean |cos| of a state and mean"),
        "conicity_signed": Column((), "float64", range=(-1.0, 1.0), undefined=FEW, doc="the same of cos, with its sign"),
    }

    layer: StateLayer = "last"

    def check(self, subject, dataset) -> None:
        """Raise SubjectError for a layer that the subject has not."""
        if self.layer != "last" and self.layer >= subject.depth:
            raise SubjectError(f"layer={self.layer}: there is no such layer; the model has {subject.depth}, counted from 0")

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        mask = subject.attendable(batch)
        states = subject.states_by_layer(batch)[-1 if self.layer == "last" else self.layer].double()
        cosines, counts = cosines_to_mean(states, mask).clamp(-1, 1), mask.sum(1)
        counts = torch.where(counts > 1, counts, torch.nan)
        values = (cosines.abs().sum(1) / counts).tolist(), (cosines.sum(1) / counts).tolist()
        return dict(zip(self.columns, values, strict=True))


def cosines_to_mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the cosines (B,T) of states (B,T,H) and their mean over the tokens, mask (B,T) bool; 0 outside the mask."""
    states = torch.where(mask.unsqueeze(2), states, 0.0)
    mean = states.sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]
    return torch.cosine_similarity(states, mean, dim=2, eps=SMALLEST) * mask


@register
class TokenLogits(Measure):
    """The logits of each token if it had all the attention: with these a page can try any other attention itself.

    The logits under any attention a over the text's tokens are sum_t a_t token_logits_t + bias. token_logits_t = W h_t,
    states h held fixed. What a second text that the decoder reads adds, such as a question, is in the bias.
    """

    name, needs = "token_logits", frozenset({"affine read-out"})
    columns = {
        "token_logits": Column(("T", "C"), unit="logits", doc="W h of each token; attention sums these and adds the bias"),
        "token_logits_bias": Column(("C",), doc="the logits that are left without any attention", unit="logits"),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        rows = [(text.values.astype(np.float32), text.bias.astype(np.float32)) for text in read_out(subject, batch)]
        return self.in_columns(subject, rows)

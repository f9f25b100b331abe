"""How much of attention lies on groups of tokens: impermissible ones, punctuation, markers, parts of speech.

Shapes: B instances, L input positions, T places of attention, H heads of all layers that are shown, G groups.
"""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.data.taggers import UNIVERSAL, Tagger, is_punctuation, tagger_of
from attnfaith.interventions.impermissible import NAME, impermissible
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.record.words import words_of
from attnfaith.subjects import Batch, Subject, SubjectError


UNDEFINED = "no token of the text is in the group, or all are"
MAPS = "attention maps"


@register
class GroupMass(Measure):
    """How much of attention lies on groups of tokens: impermissible ones, punctuation, markers, parts of speech.

    What part of its attention a model shows on words of a kind, such as those that it should not need.

    The groups of a text's tokens, those that there are:

    * impermissible: what the data mark so (the paper's attention mass, a . m).
    * punctuation: tokens of words that are punctuation alone.
    * markers: of a stack of layers what is no token of the text, such as [CLS] and [SEP]; and with them attention sinks.
    * with a tagger, the universal part of speech of a token's word in its text: an estimate, as good as the tagger.

    Groups overlap and are not all that there is. Of a stack of layers a mass is a share of the whole rows, of which markers
    take a part; of what is shown of the text it is the mass over 1 - that of markers. Punctuation and parts of speech are of
    what a token is called, which batches hold in a measurement alone; elsewhere these groups are not there. A sentence is in
    a group where one of its words is impermissible, or all is punctuation.

    tagger: the name of one that is installed (`attnfaith.data.taggers`). group_mass_head_max is the paper's "max": one head
    may look at what the mean over heads hides.

    Undefined (NaN): a group of which the text has no token, or of which all its tokens are, so that no weight could lie
    elsewhere; all of a text without tokens. Nothing is random.

    Source: Pruthi et al. 2020, section 3 (attention mass); Mohankumar et al. 2020, section 5.4 (parts of speech).

    Shapes: B instances, L input positions, T places of attention, H heads of all layers that are shown, G groups.
    """

    name, cost = "group_mass", "reading"
    columns = {
        "group_mass_names": Column(("G",), "string", doc="names of the groups; parts of speech by their universal tags"),
        "group_mass": Column(
            ("G",),
            "float64",
            range=(0.0, 1.0),
            undefined=UNDEFINED,
            doc="sum of the weights on the group's tokens; of a stack of layers as a share of the whole rows that are "
            "shown, "
            "markers included",
        ),
        "group_mass_tokens": Column(("G",), "int64", doc="how many tokens of the text are in the group"),
        "group_mass_head_max": Column(
            ("G",),
            "float64",
            range=(0.0, 1.0),
            undefined=UNDEFINED,
            doc="the same in the head where it is largest, of the layers that are shown: the mean over the rows that matter",
            needs=frozenset({"attention maps"}),
        ),
    }

    tagger: str | None = None

    def __post_init__(self) -> None:
        if self.tagger is not None:
            tagger_of(self.tagger)

    def check(self, subject, dataset) -> None:
        """Raises SubjectError for parts of speech of sentences."""
        if self.tagger is not None and subject.level == "sentence":
            raise SubjectError(
                "a sentence has no part of speech: measure the words of this model, with level='word', or leave out the "
                "tagger"
            )

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        mask = subject.attendable(batch)
        groups = _of_tokens(subject, batch, mask, None if self.tagger is None else tagger_of(self.tagger))
        weights = subject.attention(batch).double()
        maps = MAPS in subject.capabilities
        if maps:
            markers = subject.reduced(batch)[1]
            weights = weights * (1 - markers).unsqueeze(1)
            groups["markers"] = batch["attention_mask"].bool() & ~mask
        names = list(groups)
        inside = torch.stack([groups[name] for name in names], 1) if names else mask.new_zeros(len(mask), 0, mask.shape[1])
        counts, lengths = inside.sum(2), mask.sum(1, keepdim=True)
        tokens = counts - (inside & ~mask.unsqueeze(1)).sum(2)
        defined = (counts > 0) & (tokens < lengths)
        mass = {"group_mass": torch.einsum("bt,bgt->bg", weights, inside.double())}
        if maps:
            by_head = _by_head(subject, batch)
            mass["group_mass_head_max"] = torch.einsum("bht,bgt->bhg", by_head, inside.double()).amax(1)
            of_text = (by_head * mask.unsqueeze(1)).sum(2)
            place = names.index("markers")
            mass["group_mass"][:, place] = markers
            mass["group_mass_head_max"][:, place] = 1 - of_text.amin(1)
        mass = {name: torch.where(defined, values.clamp(0, 1), torch.nan).cpu().numpy() for name, values in mass.items()}
        columns = {"group_mass_names": [names] * len(mask), "group_mass": list(mass.pop("group_mass"))}
        columns["group_mass_tokens"] = list(counts.cpu().numpy())
        return columns | {name: list(values) for name, values in mass.items()}


def _of_tokens(subject: Subject, batch: Batch, mask: torch.Tensor, tag: Tagger | None) -> dict[str, torch.Tensor]:
    """The groups of a text's tokens, (B,T) bool each."""
    groups = {}
    if batch.get(NAME) is not None:
        groups[NAME] = impermissible(subject, batch, "group_mass")
    if batch.get("tokens") is None:
        return groups
    owners = batch.get("word_of_token") or [range(len(tokens)) for tokens in batch["tokens"]]
    called = [_called(*of_text, tag) for of_text in zip(batch["tokens"], owners, strict=True)]
    for name in ("punctuation", *(UNIVERSAL if tag else ())):
        marks = np.zeros(mask.shape, bool)
        marks[mask.cpu().numpy()] = [name in of_token for of_text in called for of_token in of_text]
        groups[name] = torch.from_numpy(marks).to(mask.device)
    return groups


def _called(tokens: Sequence[str], owners: Sequence[int], tag: Tagger | None) -> list[set[str]]:
    """The groups that each token of a text is in, by its word."""
    words, numbers = words_of(tokens, owners)
    called = [{"punctuation"} if is_punctuation(word) else set() for word in words]
    if tag:
        called = [names | {said} for names, said in zip(called, tag(words), strict=True)]
    return [called[number] for number in numbers]


def _by_head(subject: Subject, batch: Batch) -> torch.Tensor:
    """(B,H,L): the mean over the rows that matter, of each head of the layers that are shown."""
    numbers = {subject.sites.layers[layer] for layer in subject.reduction.chosen(len(subject.sites.layers))}
    rows = subject.matter(batch).double()
    rows = rows / rows.sum(1, keepdim=True)
    maps = subject.read(batch, keep=numbers.__contains__).maps
    return torch.cat([torch.einsum("bq,bhql->bhl", rows, one.weights.double()) for one in maps], 1)

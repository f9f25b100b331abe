"""Any text classifier of transformers as a subject: the attention of its layers and heads, read and edited by one hook.

Shapes: B instances, L input positions, which are the places of attention, H heads, C classes, K attentions per instance, E
embedding, D the size of a head's values.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import torch

from attnfaith.data.classifier_text import encode_columns, encode_for_classifier, without_tokens
from attnfaith.data.collation import OF_POSITIONS, keep_positions, pad_batch
from attnfaith.data.in_memory import columns_of_texts
from attnfaith.data.subwords import places_of
from attnfaith.models.registration import RATIONALE, SELF_ATTENTION
from attnfaith.subjects.attention import (
    Edit,
    Embedded,
    Given,
    Held,
    Hook,
    Read,
    joined,
    lengths_of,
    map_products,
    nothing,
    widened,
)
from attnfaith.subjects.backward_rules import Entry, Shares, check_rules, find_entries, shares
from attnfaith.subjects.checks import Sites, Texts, checked, probe, tolerance_of
from attnfaith.subjects.facts import (
    WITHOUT_CLASSES,
    check_finite,
    check_place,
    check_tokens,
    class_names_of,
    hash_of_model,
    output_of,
    position_limit,
    separates,
)
from attnfaith.subjects.layers import Fed, Layer, LayerParts, Recorded, projected, result_of, rows_at_once, summands
from attnfaith.subjects.modes import configured, eager, in_eval_mode, unwrapped
from attnfaith.subjects.prefix import Prefix, prefix_of
from attnfaith.subjects.protocol import MAPS, OF_TOKENIZERS, TEXT, TEXTS, Batch, SubjectError
from attnfaith.subjects.reduction import Reduction
from attnfaith.subjects.removal import TOKENS_AT_ONCE


class SelfAttention:
    """A `…ForSequenceClassification` of transformers: encoder, decoder, or encoder and decoder; one text or two.

    model: the classifier. Whenever it is read its attention is "eager", step by step, and after it as before: other
    implementations keep their weights to themselves. Logits stay the same up to rounding, which is checked. Nothing else of
    the model is changed. tokenizer: of the model, for `encode` and `rows`, and for what in a batch is no text. reduction:
    what a person would be shown, see `Reduction.of`.

    Layers are those whose attention is over input positions: self-attention; of an encoder–decoder, the decoder's attention
    over the encoder. Rows that matter are those of the last layer whose output the logits depend on: the first token's of a
    BERT, the last one's of a GPT, all where states are averaged.

    Raises SubjectError for a model that is no classifier of this kind, and where its attention cannot be trusted: the
    message names the check that failed (`attnfaith.subjects.checks`).
    """

    kind = "text classifiers of transformers"
    can = (
        MAPS
        | OF_TOKENIZERS
        | {"classes", "embeddings", "embedding length", "held attention", "attention gradients", "token deletion"}
        | {"intervention", "weighed vectors", "weighted sums", "token states", "other states"}
    )
    contextual = True
    level = "token"

    def __init__(self, model, tokenizer=None, reduction="last"):
        self.model, self.tokenizer = unwrapped(model), tokenizer
        check_place(self.model)
        self.reduction = Reduction.of(reduction)
        self.config, self.num_labels = self.model.config, self.model.config.num_labels
        self.output = output_of(self.config)
        self.sites: Sites = checked(Texts(self))
        self.own_way = getattr(self.config, "_attn_implementation", "eager")
        self.in_one_piece = False  # see `fused`
        self.ruled = False  # until the rules have been checked
        self.read_whole: set[int] = set()  # lengths at which all maps were there
        self.reduction.check(self.sites.heads, self.sites.lacks)

    @classmethod
    def of(cls, model, level: str | None = None) -> "SelfAttention | None":
        """A sequence classifier of transformers as a subject; None for anything else, and for those of this package."""
        name = getattr(getattr(model, "config", None), "model_type", "")
        if name in ("attention_classifier", RATIONALE) or not type(model).__name__.endswith("ForSequenceClassification"):
            return None
        if level == "word":
            raise SubjectError(
                "level='word' is of hierarchical models; leave it out: `attnfaith report --words` sums to words"
            )
        return cls(model)

    def shown_by(self, reduction) -> "SelfAttention":
        """The same model under another reduction; what was checked is not checked again."""
        other = copy.copy(self)
        other.reduction = Reduction.of(reduction)
        other.reduction.check(self.sites.heads, self.sites.lacks)
        return other

    def in_double(self) -> "SelfAttention":
        """A copy of the model in float64, beside which it is seen what rounding does."""
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model).double()
        return other

    @property
    def lacks(self) -> dict[str, str]:
        lacks = dict(self.sites.lacks)
        if self.output != "classes":
            lacks["classes"] = WITHOUT_CLASSES[self.output]
        if not self.reduction.one_head:
            lacks["intervention"] = "what is shown is not the attention of one head"
        if not self.sites.embeddings:
            needing = ("embeddings", "embedding length", "held attention", "backward rules")
            lacks |= dict.fromkeys(needing, "no table of tokens is asked for the ids as they are")
        if self.mask_token_id is None:
            lacks["mask token"] = "its tokenizer has none"
        if not self.sites.hides:
            lacks["token hiding"] = "its logits depend on tokens whose attention_mask is 0"
        if self.tokenizer is None:
            lacks["texts"] = "its tokenizer is not known"
        if self.reduction.way != "mean":
            why = f"what {self.reduction.way} gives weighs no vectors"
            lacks |= dict.fromkeys(("weighed vectors", "weighted sums"), why)
        return lacks

    @property
    def capabilities(self) -> frozenset[str]:
        return self.can - set(self.lacks)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def max_length(self) -> int | None:
        """The most input positions of a text; None where there is no bound."""
        return position_limit(self)

    @property
    def pad_token_id(self) -> int | None:
        for owner in (self.model.config, getattr(self.model.config, "text_config", None), self.tokenizer):
            number = getattr(owner, "pad_token_id", None)
            if number is not None and number >= 0:
                return int(number)  # the model's own first: by it a decoder finds the end of a text
        return None

    @property
    def filling(self) -> int:
        """What stands behind the mask; a model that does not know its padding reads texts of one length at a time."""
        return 0 if self.pad_token_id is None else self.pad_token_id

    @property
    def unknown_token_id(self) -> int:
        number = getattr(self.tokenizer, "unk_token_id", None)
        return self.filling if number is None else number

    @property
    def mask_token_id(self) -> int | None:
        """The token that stands for a hidden one; None where the tokenizer has none."""
        return getattr(self.tokenizer, "mask_token_id", None)

    @property
    def markers(self) -> frozenset[int]:
        """The ids of tokens that stand around texts: these are markers in a batch without special_tokens_mask."""
        owner = self.model.config if self.tokenizer is None else self.tokenizer
        ids = [getattr(owner, f"{role}_token_id", None) for role in ("cls", "sep", "bos", "eos")]
        several = (number if isinstance(number, list | tuple) else [number] for number in ids)  # an end may be one of many
        return frozenset(number for numbers in several for number in numbers if number is not None)

    @property
    def class_names(self) -> tuple[str, ...]:
        """() where the configuration has only those that transformers makes up."""
        names = class_names_of(self.config)
        return names or ("value",) if self.output == "values" and self.num_labels == 1 else names

    # ---------------------------------------------------------------------------------------- texts

    def rows(self, texts):
        """Of pairs the tokens of both texts."""
        return self._encoded(encode_for_classifier, texts)

    def _encoded(self, encode: Callable, texts):
        if self.tokenizer is None:
            raise SubjectError("texts need the model's tokenizer: SelfAttention(model, tokenizer)")
        rows = encode(texts, self.tokenizer, max_length=self.max_length)
        check_tokens(self.model, rows)
        return rows

    def encode(self, texts: Sequence) -> Batch:
        """A batch from texts, or from pairs (text, second text)."""
        columns = self._encoded(encode_columns, columns_of_texts(texts)) if len(texts) else {}
        return self.collate([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])

    def collate(self, rows: Sequence[Mapping]) -> Batch:
        """A batch from rows of `rows`, on the model's device."""
        names = ("input_ids", *OF_POSITIONS)
        # where a tokenizer makes nothing of nothing
        empty = {"input_ids": [self.filling], **dict.fromkeys(OF_POSITIONS, [0]), "special_tokens_mask": [1]}
        batch = pad_batch(
            [{name: row[name] or empty[name] for name in names if row.get(name) is not None} for row in rows],
            self.filling,
        )
        batch["attention_mask"][[not row["input_ids"] for row in rows]] = 0  # a place to fill is no token
        batch |= {"instance_id": [row["instance_id"] for row in rows], "label": [row.get("labels") for row in rows]}
        batch |= {name: [row[name] for row in rows] for name in TEXTS if rows[0].get(name) is not None}
        return Batch.of(batch, self)

    def check(self, dataset) -> None:
        """Raises SubjectError for texts that no token is of, a model whose weights are not finite, and longer texts than
        its positions.
        """
        check_finite(self.model)
        longest = max(dataset["length"], default=0)
        if self.max_length is not None and longest > self.max_length:
            raise SubjectError(
                f"a text of {longest} tokens, and the model has {self.max_length} positions: encode the texts by `rows`, "
                "which cuts them and says so"
            )

    def attendable(self, batch: Batch) -> torch.Tensor:
        """(B,L) bool: the tokens of a text, of a pair those of both; no markers, no padding."""
        special = batch.get("special_tokens_mask")
        if special is None:
            markers = torch.tensor(sorted(self.markers), device=batch["input_ids"].device, dtype=torch.int64)
            special = torch.isin(batch["input_ids"], markers)
        return batch["attention_mask"].bool() & ~special.bool()

    def items(self, batch: Batch) -> None:
        """None: places are positions."""

    def keep(self, batch: Batch, stays: torch.Tensor) -> Batch:
        """Ids are taken away, and texts are not divided into tokens anew."""
        rest = {name: values for name, values in batch.items() if name in ("instance_id", "label")}
        return Batch.of({**keep_positions(batch, stays, self.filling), **rest}, self)

    def retokenised(self, batch: Batch, stays: torch.Tensor) -> Batch:
        """Raises SubjectError for a batch that does not hold its texts, DatasetError where its tokens are not theirs."""
        names = [name for name in TEXTS if batch.get(name) is not None]
        if not names:
            raise SubjectError(
                "a text that is tokenised anew has to be known, and this batch holds tokens alone: make it from texts, by "
                "`encode`, or from what `rows` gives, by `collate`"
            )
        ids, places, lengths = batch["input_ids"].tolist(), stays.tolist(), batch["attention_mask"].sum(1).tolist()
        marks = None if batch.get("impermissible") is None else batch["impermissible"].tolist()
        left = []
        for row, parts in enumerate(zip(*(batch[name] for name in names), strict=True)):
            read = [values[row][: lengths[row]] for values in (ids, places, *(() if marks is None else (marks,)))]
            left.append(without_tokens(parts, *read[:2], self.tokenizer, *read[2:]))
        texts = [[text for text, _ in of_row] for of_row in left]
        encoded = self.tokenizer(*(list(part) for part in zip(*texts, strict=True)), truncation=False, padding=False)
        given = ("input_ids", *(("token_type_ids",) if batch.get("token_type_ids") is not None else ()))
        empty = {"input_ids": [self.filling], "token_type_ids": [0]}  # where a tokenizer makes nothing of nothing
        rows = [{name: encoded[name][row] or empty[name] for name in given} for row in range(len(texts))]
        for row, encoding in zip(rows, encoded.encodings, strict=True):
            inside = {place for number in range(len(names)) for place in places_of(encoding, number)}
            row["special_tokens_mask"] = [int(place not in inside) for place in range(len(encoding.ids))] or [1]
        if marks is not None:
            for row, encoding in enumerate(encoded.encodings):
                tokens = zip(encoding.sequence_ids, encoding.offsets, strict=True)
                marked = [number is not None and any(left[row][number][1][slice(*span)]) for number, span in tokens]
                rows[row]["impermissible"] = [int(mark) for mark in marked] or [0]
        padded = pad_batch(rows, self.filling)
        return Batch.of({**padded, "instance_id": batch["instance_id"], "label": batch["label"]}, self)

    # ---------------------------------------------------------------------------------------- model

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Within, the model is in eval mode and its attention "eager"; after it, both as before."""
        with in_eval_mode(self.model), eager(self.model):
            yield

    @contextmanager
    def fused(self) -> Iterator[None]:
        """Within, predictions compute attention in one piece ("sdpa") where no map of it is read or edited, and that is the
        model's own way and gives the logits of "eager" attention.
        """
        self.in_one_piece = self.own_way == "sdpa" and self.sites.difference <= 0.1 * tolerance_of(self.model)
        try:
            yield
        finally:
            self.in_one_piece = False

    def parameters(self) -> Iterator[torch.Tensor]:
        return self.model.parameters()

    def embed(self, batch: Batch) -> torch.Tensor:
        """The rows of the table of tokens, before they are scaled and positions are added."""
        return widened(torch.nn.functional.embedding(batch["input_ids"], self.vocabulary()))

    def vocabulary(self) -> torch.Tensor:
        return self.model.get_input_embeddings().weight

    def predict(self, batch: Batch, embedded: torch.Tensor | None = None, *, hold: bool = False) -> torch.Tensor:
        return self.read(batch, Held() if hold else None, embedded, keep=nothing).logits

    @torch.no_grad()
    def attention(self, batch: Batch) -> torch.Tensor:
        """(B,L): the reduction's weights on tokens of the text, divided by their sum; kept in the batch.

        What of the reduced row lies on markers is left out. A text without a token has none.
        """
        if batch.get("attention") is None:
            batch["attention"] = self.reduced(batch)[0]
        return batch["attention"]

    @torch.no_grad()
    def reduced(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights of `attention` (B,L), and the share (B,) of the reduced row on markers; kept in the batch."""
        if "reduced" not in batch:
            batch["reduced"] = self._reduced(batch)
        return batch["reduced"]

    def _reduced(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        layers = self.reduction.chosen(len(self.sites.layers))
        numbers = {self.sites.layers[layer] for layer in layers}
        read = self.read(batch, keep=numbers.__contains__, rows=True)
        batch["matter"] = read.rows
        weights = self.reduction([widened(attention_map.weights) for attention_map in read.maps], read.rows).double()
        if bool((nothing := ~read.rows.any(1)).any()):
            raise SubjectError(
                f"the logits of {int(nothing.sum())} of {len(nothing)} texts depend on nothing that the last layer says ("
                "such as where a ReLU gives 0 alone): no row of its attention can be shown"
            )
        inside = self.attendable(batch)
        on_text = torch.where(inside, weights, 0.0)
        total = on_text.sum(1, keepdim=True)
        return torch.where(total > 0, on_text / total, inside / inside.sum(1, keepdim=True).clamp(min=1)), 1 - total[:, 0]

    @torch.no_grad()
    def matter(self, batch: Batch) -> torch.Tensor:
        """(B,L) bool: the rows of the last layer whose output the logits depend on; kept in the batch."""
        if "matter" not in batch:
            batch["matter"] = self.read(batch, keep=nothing, rows=True).rows
        return batch["matter"]

    def intervene(self, batch: Batch, attention: torch.Tensor) -> torch.Tensor:
        """Logits (B,C) with the weights (B,L) in the rows that matter of the reduction's one head, or (B,K,C) with (B,K,L).

        Tokens share what the head gives tokens of the text; markers keep theirs. All other attention is the model's own, but
        what follows it.
        """
        (layer,) = self.reduction.chosen(len(self.sites.layers))
        count, draws = len(attention), attention.shape[1] if attention.dim() == 3 else 1
        if draws > 1 and "prefix" not in batch:
            batch["prefix"] = self.prefix(batch, layer)
        owner = torch.arange(count, device=self.device).repeat_interleave(draws)
        of_text = (part[owner] for part in (self.attendable(batch), self.matter(batch)))
        edit = Given(self.sites.layers[layer], self.reduction.head, attention.reshape(len(owner), -1), *of_text)
        logits = self.edited(batch, owner, edit, batch.get("prefix"))
        return logits.unflatten(0, (count, draws)) if attention.dim() == 3 else logits

    def edited(self, batch: Batch, owner: torch.Tensor, edit: Edit, prefix: Prefix | None = None) -> torch.Tensor:
        """Logits (N,C) of copies `owner` (N,) of a batch's instances under an edit of these copies, as many as fit at once.

        edit: its `take` is asked for the part that is of some of the copies. prefix: see `prefix`; of this very batch.
        """
        width = batch["input_ids"].shape[1]
        parts = [torch.zeros(0, self.num_labels, device=self.device)]
        step = max(1, TOKENS_AT_ONCE // max(1, width))
        for some in torch.arange(len(owner), device=self.device).split(step) if len(owner) else ():
            after = None if prefix is None else (prefix, owner[some])
            part = edit.take(some, width)
            parts.append(self.read(batch.take(owner[some]), part, keep=nothing, after=after).logits)
        return torch.cat(parts)

    def read(
        self,
        batch: Batch,
        edit: Edit | None = None,
        embedded: torch.Tensor | None = None,
        *,
        keep: Callable[[int], bool] | None = None,
        rows: bool = False,
        scores: bool = False,
        after: tuple[Prefix, torch.Tensor] | None = None,
    ) -> Read:
        """One forward pass, edited and read: see `Read`.

        edit: its numbers are those of all maps; `sites.layers` are those of the layers over input positions, which alone
        come back. embedded (B,L,E) takes the place of the tokens' embeddings, and gradients reach it. keep: the maps that
        come back, by number; all layers by default. rows: whether to say which rows of the last layer matter. scores:
        whether maps keep those of their softmax. after: what is known of the texts, see `prefix`, and which of its instances
        those of the batch are; maps before it are not made.

        A model that padding disturbs reads texts of one length at a time; `Edit.take` is asked for the part of an
        edit that is of them.
        """
        edit, keep = edit or Edit(), self.sites.layers.__contains__ if keep is None else keep
        groups = self.groups(batch)
        if len(groups) == 1 and groups[0][1] == batch["input_ids"].shape[1]:
            return self._read(batch, edit, embedded, keep, rows, scores, after)
        parts = []
        for chosen, length in groups:
            of_group = None if embedded is None else embedded[chosen, :length]
            parts.append(self._read(batch.take(chosen, length), edit.take(chosen, length), of_group, keep, rows, scores))
        return joined(parts, torch.cat([chosen for chosen, _ in groups]), batch["input_ids"].shape[1])

    def prefix(self, batch: Batch, layer: int) -> Prefix | None:
        """What the model computes of a batch before the attention of a layer, for passes that change nothing before it:
        read(copies, edit, after=(prefix, rows)) says the same as read(copies, edit), copies being batch.take(rows).

        None where nothing is saved: a model that cannot be read so, or that reads texts of one length at a time.
        """
        if self.sites.together != "padded":
            return None
        with self.evaluating():
            return prefix_of(self.model, self.given(batch), self.sites.layers[layer])

    def groups(self, batch: Batch) -> list[tuple[torch.Tensor, int]]:
        """The instances that can be read together, as rows (n,), and how many input positions they have."""
        lengths, width = lengths_of(batch["attention_mask"]), batch["input_ids"].shape[1]
        rows = torch.arange(len(lengths), device=lengths.device)
        if self.sites.together == "padded":
            return [(rows, width)]
        if len(rows) == 1:
            return [(rows, int(lengths[0]))]
        groups = [(rows[lengths == length], int(length)) for length in lengths.unique()]
        if self.sites.together == "one at a time":
            groups = [(row, length) for group, length in groups for row in group.split(1)]
        return groups

    def given(self, batch: Batch) -> dict[str, torch.Tensor]:
        """What the model is called with: behind texts its own padding, by which some find ends; of no text one such token.

        Raises SubjectError for padding on the left, which would shift positions, and for a batch that does not say which
        tokens are impermissible, where the model keeps these apart.
        """
        names = TEXT if self.sites.token_types else TEXT[:2]
        if separates(self.model):
            names = (*names, "impermissible")
            if batch.get("impermissible") is None:
                raise SubjectError(
                    f"{type(self.model).__name__} keeps impermissible tokens apart, and this batch does not say which these "
                    "are: give texts of a data set that marks them, or a tensor impermissible, 0 or 1 for each of input_ids"
                )
        given = {name: batch[name] for name in names if batch.get(name) is not None}
        ids, mask = given["input_ids"], given["attention_mask"]
        if bool(mask.all()):
            return given
        padding = sorted({self.pad_token_id, getattr(self.tokenizer, "pad_token_id", None)} - {None})
        left = (mask[:, 0] == 0) & torch.isin(ids[:, 0], torch.tensor(padding, device=ids.device)) & mask.any(1)
        if bool(left.any()):
            raise SubjectError(
                f"{int(left.sum())} of {len(ids)} texts are padded on the left, which shifts their positions: give what "
                "tokenizer(…, padding=True, padding_side='right') makes"
            )
        lengths, places = lengths_of(mask).unsqueeze(1), torch.arange(ids.shape[1], device=ids.device)
        given["input_ids"] = ids.masked_fill(places >= lengths, self.filling)
        given["attention_mask"] = torch.where(mask.any(1, keepdim=True), mask, (places == 0).to(mask))
        return given

    @cached_property
    def entries(self) -> list[Entry]:
        """Where its stacks of layers begin, see `find_entries`."""
        with self.evaluating():
            return find_entries(self, *probe(self))

    def attention_products(self, batch: Batch, explain: Callable) -> torch.Tensor:
        """Summed over the rows that matter and over the layers and heads of its reduction."""
        layers, head = self.reduction.chosen(len(self.sites.layers)), self.reduction.head
        whole = torch.zeros(batch["input_ids"].shape, dtype=torch.float64, device=self.device)
        for part in map_products(self, batch, explain, layers):
            for layer in layers:
                products = part.of_rows[layer]
                whole[part.rows, : part.length] += products.sum(1) if head is None else products[:, head]
        return whole

    def relevance(self, batch: Batch, explain: Callable, rules: str | None = None, inputs: str = "layer") -> Shares:
        return shares(self, batch, explain, rules, inputs)

    def check_rules(self, inputs: str = "layer") -> None:
        """Random text is read."""
        with self.evaluating():
            self.ruled = self.ruled or check_rules(self, probe(self)[0])
        _ = inputs == "table" or self.entries  # which raises where there are none

    def _read(self, batch, edit, embedded, keep, rows, scores, after=None) -> Read:
        given = self.given(batch)
        last = self.sites.layers[-1]
        count, length = given["input_ids"].shape
        kept = {number for number in self.sites.layers if keep(number)}
        hook = Hook(count, edit, kept.__contains__, last if rows else None, scores)
        asked = rows or after is not None or keep is not nothing or type(edit) is not Edit
        unread = not asked and length in self.read_whole  # nothing to read or edit: watching would only take time
        way = "sdpa" if unread and self.in_one_piece else "eager"
        with ExitStack() as stack:
            stack.enter_context(configured(self.model, _attn_implementation=way, return_dict=True))
            if embedded is not None:
                stack.enter_context(Embedded(self.vocabulary(), given["input_ids"], embedded))
            if after is not None:
                prefix, chosen = after
                hook.number = prefix.skipped
                stack.enter_context(prefix.given(chosen))
            if unread:
                return Read(widened(self.model(**given).logits))
            stack.enter_context(hook)
            logits = widened(self.model(**given).logits)
        if hook.number != self.sites.maps or any(
            attention_map.weights.shape[2] != attention_map.weights.shape[3] for attention_map in hook.maps
        ):
            raise SubjectError(
                f"texts of {length} positions are read by {hook.number} attentions, shorter ones by "
                f"{self.sites.maps}: this model reads long texts in pieces, and only short ones can be measured"
            )
        self.read_whole.add(length)
        matter = hook.rows(logits, given["attention_mask"]) if rows else None
        return Read(logits, hook.maps, matter)

    @property
    def depth(self) -> int:
        """Its layers over input positions."""
        return len(self.sites.layers)

    def token_states(self, batch: Batch, layer: int) -> torch.Tensor:
        """(B,L,E): what the module of a layer gives, before a norm that stands behind all layers."""
        return self._states(batch, [layer])[0]

    def states_by_layer(self, batch: Batch) -> list[torch.Tensor]:
        """See `token_states`."""
        return self._states(batch, range(self.depth))

    @torch.no_grad()
    def _states(self, batch: Batch, layers: Sequence[int]) -> list[torch.Tensor]:
        results = {self.sites.blocks[layer]: [] for layer in layers}
        with ExitStack() as stack:
            for name, to in results.items():
                module = self.model.get_submodule(name)
                stack.enter_context(
                    module.register_forward_hook(lambda *given, to=to: to.append(result_of(given[-1]).detach()))
                )
            self.read(batch, keep=nothing)
        return [self._joined(batch, results[self.sites.blocks[layer]], layer) for layer in layers]

    def _joined(self, batch: Batch, results: list[torch.Tensor], layer: int) -> torch.Tensor:
        """The states (B,L,E) of a layer, from what its module gave of each group of texts that are read together."""
        first, every = self._calls(layer)
        groups, own = self.groups(batch), results[first::every]
        states = own[0].new_zeros(*batch["input_ids"].shape, own[0].shape[2])
        for (rows, length), of_group in zip(groups, own, strict=True):
            states[rows, :length] = of_group
        return states

    def _calls(self, layer: int) -> tuple[int, int]:
        """Which call of its module in a reading is this layer's, and of how many: a module may serve as several layers."""
        blocks = self.sites.blocks
        return blocks[:layer].count(blocks[layer]), blocks.count(blocks[layer])

    def predict_from(self, batch: Batch, layer: int, states: torch.Tensor) -> torch.Tensor:
        first, every = self._calls(layer)
        inside, calls = self.attendable(batch).unsqueeze(2), itertools.count()
        groups = self.groups(batch)

        def replaced(module, given, result):
            group, call = divmod(next(calls), every)
            if call != first:
                return None
            rows, length = groups[group]
            own = result_of(result)
            other = torch.where(inside[rows, :length], states[rows, :length].to(own), own)
            return other if isinstance(result, torch.Tensor) else type(result)([other, *result[1:]])

        with self.model.get_submodule(self.sites.blocks[layer]).register_forward_hook(replaced):
            return self.read(batch, keep=nothing).logits

    @torch.no_grad()
    def value_norms(self, batch: Batch) -> torch.Tensor:
        """(B,N,L): of the values (D) of each head that the reduction takes, markers included."""
        numbers = {self.sites.layers[layer] for layer in self.reduction.chosen(self.depth)}
        maps = self.read(batch, keep=numbers.__contains__).maps
        head = slice(None) if self.reduction.head is None else [self.reduction.head]
        norms = torch.cat([attention_map.values.double().norm(dim=3)[:, head] for attention_map in maps], 1)
        return norms * batch["attention_mask"].unsqueeze(1)

    def layers(self, batch: Batch) -> tuple[list[Layer], torch.Tensor]:
        """The layers of a batch of one instance, and the rows (L,) bool of the last one that matter ("layer states")."""
        with Recorded(self.model, self.sites.layers, self.sites.blocks) as recorded:
            read = self.read(batch, recorded, keep=nothing, rows=True)
        return recorded.layers, read.rows[0]

    def each_layer(self, batch: Batch, states: Sequence[torch.Tensor], edit: Edit) -> list[torch.Tensor]:
        """What each layer gives (N,L,E) when it is given its state (L,E), in an edited pass of N copies of an instance
        ("layer states"): so an edit of all layers changes each as if it were the only one.
        """
        with Fed(self.model, self.sites.blocks, states) as fed:
            self.read(batch, edit, keep=nothing)
        return [torch.cat(fed.results[layer :: len(states)]) for layer in range(len(states))]

    def parts(self, layer: Layer) -> LayerParts:
        """What a layer of one instance adds up ("layer parts")."""
        return LayerParts(layer)

    def summands(self, batch: Batch) -> Iterator[tuple[int, torch.Tensor]]:
        """What the heads of the reduction add to each row that matters, projected, without bias."""
        for row in range(len(batch["input_ids"])):
            text = batch.alone(row)
            (layers, matter), inside = self.layers(text), self.attendable(text)[0]
            for layer in (layers[number] for number in self.reduction.chosen(len(layers))):
                values = projected(layer)
                for rows in rows_at_once(matter.nonzero().squeeze(1), values[0]):
                    yield row, summands(layer, values, rows, head=self.reduction.head)[:, inside].double()

    def identity(self) -> dict[str, object]:
        from attnfaith.data.subwords import tokenizer_digest

        config, reduction, tokenizer = self.config, self.reduction, self.tokenizer
        return {
            "model": "self_attention",
            "encoder": (config.text_config if config.model_type == SELF_ATTENTION else config).model_type,
            "alignment": "dot",
            "projection": getattr(config, "projection", "softmax"),
            "projection_parameter": getattr(config, "projection_parameter", None),
            "separate_impermissible": separates(self.model),
            "readout": "network",
            "reduction": reduction.way,
            "reduction_layers": str(reduction.layers),
            "reduction_head": reduction.head,
            "tokenizer_digest": None if tokenizer is None else tokenizer_digest(tokenizer),
        }

    def digest(self) -> str:
        """Of weights, configuration and reduction."""
        digest = hash_of_model(self.model)
        digest.update(repr(self.reduction).encode())
        return digest.hexdigest()

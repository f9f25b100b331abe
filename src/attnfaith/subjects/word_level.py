"""A hierarchical model as one that attends to the words of a document: what interventions at the level of words ask.

Shapes: B documents, L input positions, T words of the longest document, S sentences, H hidden, C classes, K attentions per
document.
"""

from dataclasses import replace

import torch

from attnfaith.models import AttentionClassifierForSequenceClassification
from attnfaith.models.decoders import Query, with_answers
from attnfaith.models.hierarchy import SentenceReader, item_mask, sentence_groups, sentence_items
from attnfaith.models.modeling_attention_classifier import Encoded
from attnfaith.models.projections import project
from attnfaith.subjects.protocol import SubjectError


WEIGHTLESS = 1e-30  # attention of a sentence up to here counts as 0: float32 would not hold its words' shares of it
NUMBERS_AT_ONCE = 2**24  # of the sentence vectors and word weights of attentions decoded together: 64 MiB in float32


class WordLevel:
    """The stages encode, attend and decode of a hierarchical classifier over words instead of sentences.

    States h_w (B,T,H) are those of the words, in order and without gaps between sentences. The attention alpha_w of a word
    is that of its sentence times its weight within the sentence: the coefficient that the two sums of the model give it. It
    sums to 1 over the document and is 0 in a sentence without attention.

    Any distribution over the words can be decoded, states held fixed: A_s, the sum of alpha over the words of sentence s, is
    its attention; alpha_w / A_s are the weights within it; the sentence encoder reads the sums of word states under these;
    its states, summed under A, are the context. Where A_s is 0 (1e-30 or less) alpha does not say how to read the sentence:
    it is read as the model reads it, by the model's own word weights. So the model's own alpha gives the model's
    prediction, also where a sparse projection leaves out a sentence that the states of others see; and A'_s times the
    model's own word weights gives what the sentence attention A' gives. Logits are not affine in alpha, and may jump where
    the last weight of a sentence is taken away.

    The parameters are the classifier's; put it in eval mode. Raises SubjectError for a model that is not hierarchical.

    Source: Yang et al. 2016, the two weighted sums, whose coefficients multiply.
    """

    level = "word"
    affine = False
    removal_renormalises = False  # fewer words are another sentence vector, and other sentence attention
    ignores_weightless = False  # a word of a sentence without attention moves that sentence's vector, which others see

    def __init__(self, classifier: AttentionClassifierForSequenceClassification):
        if classifier.level != "sentence":
            raise SubjectError(
                "level='word' is for hierarchical models; this model has hierarchy='none' and attends to words anyway: "
                "leave it out"
            )
        self.classifier = classifier
        self.config = classifier.config
        self.num_labels = classifier.num_labels
        self.contextual = classifier.contextual

    def sentences(self, input_ids, attention_mask=None, token_type_ids=None) -> torch.Tensor:
        """(B,L): the number of the sentence that an input position is a word of, -1 for none."""
        return self.classifier.items(input_ids, attention_mask, token_type_ids)

    def items(self, input_ids, attention_mask=None, token_type_ids=None) -> torch.Tensor:
        """(B,L): which word of its document an input position is, -1 for none (markers, marks, padding, query)."""
        inside = self.sentences(input_ids, attention_mask, token_type_ids) >= 0
        return (inside.cumsum(1) - 1).masked_fill(~inside, -1)

    def attendable(self, input_ids, attention_mask=None, token_type_ids=None) -> torch.Tensor:
        """The mask (B,T) that `encode` gives, without encoding."""
        return item_mask(self.items(input_ids, attention_mask, token_type_ids))

    def encode(
        self, input_ids=None, attention_mask=None, token_type_ids=None, inputs_embeds=None, items=None, answer_mask=None
    ) -> Encoded:
        """Stage 1: word states (B,T,H), which there are, and a `Query` that knows the sentences of words.

        The arguments are the classifier's; items: with inputs_embeds, what `items` gives for their ids.
        """
        model = self.classifier.model
        embedded, _, _, state = model.texts(input_ids, attention_mask, token_type_ids, inputs_embeds)
        if items is None:
            sentences = self.sentences(input_ids, attention_mask, token_type_ids)
        else:
            sentences = sentence_items(items >= 0)
        inside = sentences >= 0
        mask = item_mask(inside.cumsum(1) - 1)
        places = (~inside).to(torch.int8).argsort(dim=1, stable=True)[:, : mask.shape[1]]
        rows = torch.arange(len(places), device=places.device).unsqueeze(1)
        hidden = word_states(model.sentence_reader, embedded, sentences)[rows, places]
        numbers = sentences[rows, places]
        query = Query(state, sentences=numbers)
        weights = self._within(hidden, mask.unsqueeze(1), _Words(query, mask.shape[1]), state).squeeze(1)
        return Encoded(hidden, mask, with_answers(replace(query, weights=weights), answer_mask, self.num_labels))

    def attend(self, hidden: torch.Tensor, mask: torch.Tensor, query: Query) -> torch.Tensor:
        """Stage 2: word states (B,T,H) and mask (B,T) to attention (B,T); with K masks (B,K,T) to (B,K,T).

        The scores of the words that a mask allows are projected within each sentence; the sentence encoder reads the sums
        under these weights; the scores of the sentences that have a word left are projected. A sentence that has none gets
        no attention, and others' states see it as it was.
        """
        if mask.dim() == 2:
            return self.attend(hidden, mask.unsqueeze(1), query).squeeze(1)
        return torch.cat([self._attend(hidden, part, query) for part in self._parts(mask, query)], 1)

    def decode(self, hidden: torch.Tensor, attention: torch.Tensor, query: Query) -> torch.Tensor:
        """Stage 3: word states (B,T,H) and attention (B,T) to logits (B,C); with attentions (B,K,T) to (B,K,C).

        Attention that carries no gradient is held fixed at both levels. An attention of zeros leaves the bias.
        """
        if attention.dim() == 2:
            return self.decode(hidden, attention.unsqueeze(1), query).squeeze(1)
        return torch.cat([self._decode(hidden, part, query) for part in self._parts(attention, query)], 1)

    def _parts(self, values: torch.Tensor, query: Query):
        """Values (B,K,T) in parts of some of the K."""
        sentences = item_mask(query.sentences).shape[1]
        cost = values.shape[0] * (values.shape[2] + sentences * self.config.hidden_size)
        return values.split(max(1, NUMBERS_AT_ONCE // cost), 1)

    def _attend(self, hidden, mask, query):
        words = _Words(query, mask.shape[2])
        weights = self._within(hidden, mask, words, query.state)
        left = words.totals(mask.to(weights)) > 0
        weights = torch.where(words.take(left), weights, words.weights)
        states, sentence_query = self._read(hidden, weights, words, query)
        scores = self.classifier.model.alignment(states, sentence_query.state).unflatten(0, left.shape[:2])
        return words.take(project(scores, left, self.config)) * weights

    def _decode(self, hidden, attention, query):
        words = _Words(query, attention.shape[2])
        totals = words.totals(attention)
        word_totals, own = words.take(totals), words.weights if attention.requires_grad else words.weights.detach()
        weights = torch.where(word_totals > WEIGHTLESS, attention / word_totals.clamp(min=WEIGHTLESS), own)
        states, sentence_query = self._read(hidden, weights, words, query)
        return self.classifier.decode(states, totals.flatten(0, 1), sentence_query).unflatten(0, totals.shape[:2])

    def _within(self, hidden, mask, words, state) -> torch.Tensor:
        """Weights (B,K,T) of the words that masks (B,K,T) allow, summing to 1 over each sentence that has one left."""
        scores = self.classifier.model.sentence_reader.scores(hidden, state)
        weights = torch.zeros_like(mask.transpose(1, 2), dtype=torch.promote_types(scores.dtype, torch.float32))
        for group in words.groups:
            allowed = (group.take(mask.transpose(1, 2)) & group.mask.unsqueeze(-1)).transpose(1, 2)
            group_weights = project(group.take(scores).unsqueeze(1).expand(allowed.shape), allowed, self.config)
            weights = group.put(group_weights.transpose(1, 2), weights)
        return weights.transpose(1, 2)

    def _read(self, hidden, weights, words, query):
        """Sentence states (BK,S,H) from word states (B,T,H) and weights (B,K,T) within sentences, and their query."""
        vectors = words.sums(hidden, weights)
        rows = torch.arange(len(hidden), device=hidden.device).repeat_interleave(vectors.shape[1])
        # an RNN's backward pass in eval mode, which cuDNN refuses
        with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled and not torch.is_grad_enabled()):
            states, _ = self.classifier.model.encoder(vectors.flatten(0, 1), words.present[rows])
        return states, Query(query.state, query.answers)[rows]


def word_states(reader: SentenceReader, embedded: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
    """Word states (B,L,H) of embeddings (B,L,E) and items (B,L), 0 where there is no word."""
    states = embedded.new_zeros(*items.shape, reader.config.hidden_size)
    for group in sentence_groups(items):
        group_states, _ = reader.word_encoder(group.take(embedded), group.mask)
        states = group.put(group_states.to(states.dtype), states)
    return states


class _Words:
    """The words of documents by sentence: `present` (B,S), which sentences there are, `groups` of them, and the model's own
    `weights` (B,1,T) within them; of the first `width` words T.
    """

    def __init__(self, query: Query, width: int):
        self.sentences = query.sentences[:, :width]
        self.present = item_mask(self.sentences)
        self.groups = list(sentence_groups(self.sentences))
        self.weights = None if query.weights is None else query.weights[:, None, :width]

    def sums(self, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Sums (B,K,S,D) over the words of each sentence of values (B,T,D) under weights (B,K,T)."""
        weights = weights.transpose(1, 2)
        sums = values.new_zeros(*self.present.shape, weights.shape[2], values.shape[2])
        for group in self.groups:
            chosen = group.take(weights).masked_fill(~group.mask.unsqueeze(-1), 0)
            group_sums = chosen.transpose(1, 2).to(values.dtype) @ group.take(values)
            sums = sums.index_put((group.rows, group.numbers), group_sums)
        return sums.transpose(1, 2)

    def totals(self, weights: torch.Tensor) -> torch.Tensor:
        """Sums (B,K,S) of weights (B,K,T) over the words of each sentence."""
        return self.sums(torch.ones_like(self.sentences, dtype=weights.dtype).unsqueeze(-1), weights).squeeze(-1)

    def take(self, values: torch.Tensor) -> torch.Tensor:
        """Values (B,K,S) of sentences as those of their words, (B,K,T); of the first sentence behind the last word."""
        return values.gather(2, self.sentences.clamp(min=0).unsqueeze(1).expand(-1, values.shape[1], -1))

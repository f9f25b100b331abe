"""A recurrent translator without attention as a subject: what it says can be measured, and nothing that asks for weights."""

from attnfaith.subjects.recurrent_attention import RecurrentAttention
from attnfaith.subjects.sequences import SequenceSubject


class WithoutAttention(RecurrentAttention):
    """An `AttentionSeq2SeqForConditionalGeneration` with projection='none', the baseline of others.

    `attnfaith.measure` refuses such a model, for it asks whether attention aligns; a run of a recipe measures it so that its
    predictions stand beside those of models with attention.
    """

    sequence_kind = "recurrent translators of this package without attention"
    can = frozenset({"source embeddings"})

    def __init__(self, model, tokenizer=None):
        SequenceSubject.__init__(self, model, tokenizer)

"""The penalties of a pretrained classifier: the same as those of our own models, of what `TrainedClassifier` reads of it.

Shapes: B instances, L input positions.
"""

from collections.abc import Mapping

import torch

from attnfaith.errors import AttnfaithError
from attnfaith.objectives.diversity import conicity
from attnfaith.objectives.impermissible_mass import FLOOR, impermissible_mass
from attnfaith.objectives.masked_language_model import masked_language_model
from attnfaith.objectives.penalties import Penalties
from attnfaith.objectives.word_tying import word_tying
from attnfaith.subjects.in_training import ANSWERS, Reading, TrainedClassifier


def check_pretrained_penalties(classifier: TrainedClassifier, penalties: Penalties) -> None:
    """Raise AttnfaithError for the first penalty that the classifier has nothing for: no row that it answers from, no state
    for each token, states of another size than word vectors, or no token that hides a word.
    """
    name = type(classifier.model).__name__
    wanted = penalties.taken
    if "impermissible_mass" in wanted and (classifier.answers not in ANSWERS or not classifier.padded):
        raise AttnfaithError(
            f"penalties.impermissible_mass={penalties.impermissible_mass:g} with {name}, which does not answer from the first "
            "row of its last layer, the last or all, or is disturbed by padding: leave it out"
        )
    others = [key for key in wanted if key != "impermissible_mass"]
    if others and classifier.size is None:
        raise AttnfaithError(
            f"penalties.{others[0]}={wanted[others[0]]:g} with {name}, which gives no last state for each token: leave it out"
        )
    for key in ("word_tying", "masked_language_model"):
        if key in wanted and classifier.size != classifier.vector_size:
            raise AttnfaithError(
                f"penalties.{key}={wanted[key]:g} with {name}, whose states have {classifier.size} numbers and whose word "
                f"vectors {classifier.vector_size}: they are compared one by one; set it to 0, or give a model.pretrained in "
                "which both sizes are the same, such as BERT"
            )
    if "masked_language_model" in wanted and classifier.mask_token_id is None:
        raise AttnfaithError(
            f"penalties.masked_language_model={penalties.masked_language_model:g} with a tokenizer that has no token for a "
            "masked or an unknown word: leave it out"
        )


def pretrained_penalties(
    classifier: TrainedClassifier,
    read: Reading,
    inputs: Mapping[str, torch.Tensor],
    penalties: Penalties,
    masked: torch.Tensor | None = None,
) -> torch.Tensor:
    """(B,): the weighted sum of what `penalties` asks, for each text.

    read: what the classifier made of the texts. inputs: input_ids (B,L), of the words as they are, attention_mask (B,L) and
    impermissible (B,L), where its penalty is asked. masked (B,L) bool: the words that were hidden from the classifier; None
    for none, and no penalty for them.

    impermissible_mass: of the row of the last layer that the classifier answers from, each head by itself; markers are
    permissible. Of one that answers from all rows, of their mean. diversity: of the words' last states. word_tying: of these
    and the output of the input embeddings. masked_language_model: words are told from last states by the products with all
    word vectors.
    """
    mask, words = inputs["attention_mask"].bool(), classifier.words(inputs)
    total = mask.new_zeros(len(mask), dtype=torch.float32)
    if penalties.impermissible_mass:
        weights, scores = classifier.shown(read, inputs)
        lost = impermissible_mass(
            weights,
            inputs["impermissible"],
            mask,
            heads=penalties.impermissible_heads,
            scores=scores,
            floor=torch.finfo(torch.float32).tiny if classifier.softmax else FLOOR,
        )
        total = total + penalties.impermissible_mass * lost
    if penalties.diversity:
        total = total + penalties.diversity * conicity(read.states, words)
    if penalties.word_tying:
        vectors, over = classifier.vectors(inputs["input_ids"]), words
        if penalties.word_tying_padding:
            over = torch.ones_like(words)
        total = total + penalties.word_tying * word_tying(read.states, vectors, over, penalties.word_tying_distance)
    if penalties.masked_language_model and masked is not None:
        logits = classifier.vocabulary_logits(read.states[masked])
        total = total + penalties.masked_language_model * masked_language_model(logits, inputs["input_ids"], masked)
    return total

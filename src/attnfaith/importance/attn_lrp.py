"""AttnLRP (Achtibat et al. 2024): relevance of tokens in a Transformer, as one gradient by rules. Asked for by name only."""

from attnfaith.importance._relevance import check_relevance, check_ruled, rest_of, ruled
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_attn_lrp": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where f or its slope is not finite",
        doc="relevance of a token in f, what is explained",
    ),
    **rest_of("attn_lrp"),
}
NEEDS = frozenset({"embeddings", "backward rules"})
COST = "gradient"

check, check_model = check_relevance, check_ruled


@asks(NEEDS)
def measure(
    subject, batch, *, seed: int = 0, target="predicted", output: str = "logit", inputs: str = "layer"
) -> dict[str, list]:
    """Gradient times input, where gradients follow the rules of AttnLRP; in units of f.

    A product of two factors that both depend on the text, such as weights with values, queries with keys, or a gate with
    what it lets through, gives each half of the gradient; so values have a half of it, and queries and keys a quarter. The
    divisor of a normalisation is held fixed, an activation y of x has the slope y / x (where x is 0, its derivative), a
    linear layer and softmax keep their gradient: relevance of biases, and what softmax does not conserve, is nobody's. It is
    in attn_lrp_rest. Where `decompx` holds attention fixed, this follows what made the attention, too.

    inputs: see `decompx`. f is what `_explained.explaining` makes of target and output. Signed: a token ranks high as
    evidence for what is explained.

    LRP is patented. The package lxt, by authors of the method, is under the Clear BSD licence, which grants no patent
    rights, and its README says that it is free for personal and scientific use. Have other uses checked. No default, list or
    study of this package runs this measure unless it is asked for by name.

    Raises ValueError and SubjectError as `decompx` does.

    Source: Achtibat et al. 2024, section 3. No code of theirs is used here.
    """
    return ruled(subject, batch, COLUMNS, "halved", target, output, inputs)

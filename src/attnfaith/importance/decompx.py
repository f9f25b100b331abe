"""DecompX without biases (Modarressi et al. 2023): what each token adds to what is explained, through a frozen network."""

from attnfaith.importance._relevance import check_relevance, check_ruled, rest_of, ruled
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_decompx": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where f or its slope is not finite",
        doc="what a token adds to f, what is explained, attention, divisors and slopes held fixed",
    ),
    **rest_of("decompx"),
}
NEEDS = frozenset({"embeddings", "backward rules"})
COST = "gradient"

check, check_model = check_relevance, check_ruled


@asks(NEEDS)
def measure(
    subject, batch, *, seed: int = 0, target="predicted", output: str = "logit", inputs: str = "layer"
) -> dict[str, list]:
    """The vector of each token, carried through all layers and the classifier; in units of f.

    With the attention of the text, the divisors of its normalisations and the slope y / x of each activation held fixed
    (where x is 0, its derivative) a model is affine in its tokens, and so is a logit: what a token adds to it is exact. The
    paper carries every token's vector forward, in memory that grows with the square of the text; here it is gradient times
    input of that frozen model, one backward pass, and the numbers are the same. Biases are nobody's: the paper can divide
    them among tokens, which is not done. Of a gated product, which the paper does not have, the gate is held fixed.

    inputs: "layer", the vectors that the first layer reads, token, position and type together after their normalisation, as
    in the paper; "table", those of the table of tokens alone, with the divisor of that normalisation held fixed. Of an
    encoder–decoder a token has what it has in both.

    f is what `_explained.explaining` makes of target and output. A logit is the sum of its tokens, decompx_markers and
    decompx_rest; of other outputs decompx_rest has, besides the biases, what they are beyond logits times slopes. Signed: a
    token ranks high as evidence for what is explained.

    Raises ValueError as `_explained.explaining` says; SubjectError for a model with a part that is not linear under these
    rules, naming it, and for inputs="layer" where a first layer does not read one vector for each token.

    Source: Modarressi et al. 2023, section 3, without the decomposition of biases.
    """
    return ruled(subject, batch, COLUMNS, "frozen", target, output, inputs)

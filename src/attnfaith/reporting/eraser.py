"""A record's explanations as the files that ERASER's own evaluation reads (DeYoung et al. 2020)."""

import numpy as np

from attnfaith.metrics.attention_faithfulness.plausibility import mean_share, top_tokens
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.explanation_tests import measures, token_scores
from attnfaith.reporting.render import file_name


def annotations(cell: Cell) -> list[dict]:
    """The texts of a cell and their gold evidence as rows for `attnfaith.data.eraser.write_annotations`.

    [] where the record has no evidence; a text without a label is left out, as ERASER has no place for it. label: the
    class by its name where the record has it, else its number.

    Raises ReportError where the tokens are sentences, which have no evidence word by word, or subwords, and for a split of a
    name that no file can have.
    """
    file_name(cell.heading["split"])
    if cell.words is not None:
        raise ReportError("the record holds sentences, ERASER's files hold words: measure with --measure.level word")
    if cell.has("word_of_token"):
        raise ReportError("the record holds subwords, ERASER's files hold words: train without data.tokenizer")
    if not cell.has("rationale"):
        return []
    rows = zip(cell.instance_ids, cell.table.column("tokens").to_pylist(), cell.labels, strict=True)
    queries = cell.queries or [[]] * len(cell)
    return [
        {
            "instance_id": name,
            "text": " ".join(tokens),
            "text_pair": " ".join(query),
            "label": cell.class_names[int(label)] if cell.class_names else str(int(label)),
            "rationale": gold.astype(int).tolist(),
        }
        for (name, tokens, label), query, gold in zip(rows, queries, cell.rows("rationale"), strict=True)
        if not np.isnan(label) and not np.isnan(gold).any()
    ]


def results(cell: Cell, measure: str, share: float | None = None) -> list[dict]:
    """One measure's tests as rows for `attnfaith.data.eraser.write_results`, which ERASER's own evaluation reads.

    share: of the tokens that make up the rationale; None for the mean share marked in the record, without which there is
    none. classification: the predicted class by its name where the record has it, else its number. Of the scores by class
    those of the predicted one are there, the only one that AOPC reads. Texts where the measure is undefined are left out.

    Raises ReportError for a measure that was not tested, or of a name that no file can have, and for a share out of range.
    """
    names = measures(cell)
    file_name(measure)
    if measure not in names:
        raise ReportError(f"no tests of {measure!r}; the cell holds those of {', '.join(names)}")
    values, place = token_scores(cell, measure), names.index(measure)
    if share is None and cell.has("rationale"):
        share = mean_share(cell.rows("rationale"))
    chosen = [None] * len(cell) if share is None or np.isnan(share) else top_tokens(values, share)
    shares = cell.shared("rationale_erasure_shares")
    whole = cell.column("rationale_erasure_whole_prob")
    kept, removed = (cell.stacked(f"rationale_erasure_{name}_probs")[:, place] for name in ("kept", "removed"))
    rows = []
    for row in np.flatnonzero(~np.isnan(kept).any(1)):
        number = int(cell.predicted[row])
        name = cell.class_names[number] if cell.class_names else str(number)
        rows.append(
            {
                "instance_id": cell.instance_ids[row],
                "scores": values[row].tolist(),
                "chosen": None if chosen[row] is None else chosen[row].tolist(),
                "classification": name,
                "classification_scores": {name: float(whole[row])},
                "thresholded_scores": [
                    {
                        "threshold": float(at),
                        "comprehensiveness_classification_scores": {name: float(without)},
                        "sufficiency_classification_scores": {name: float(alone)},
                    }
                    for at, without, alone in zip(shares, removed[row], kept[row], strict=True)
                ],
            }
        )
    return rows

"""Does attention explain what a model does? The measures of the debate, as one `evaluate` metric."""

import datasets
import evaluate
import numpy as np

from .alignment_error_rate import NAMES as ALIGNMENT_NAMES
from .alignment_error_rate import (
    alignment_results,
    alignment_scores,
    link_counts,
    parsed_links,
    read_links,
    written_links,
)
from .columns import SHOWN, InputError, check_padding, check_share, masked, number_rows, numbers, short
from .dispersion import normalised_entropy, share_of_zeros, support_size
from .divergences import (
    check_distributions,
    decision_flips,
    flatten_pair,
    flip_fraction,
    jensen_shannon_divergence,
    total_variation_distance,
)
from .erasure_curves import erasure_results
from .plausibility import plausibility_results
from .rank_agreement import agreement_by_text, check_settings, summaries
from .support_agreement import support_auprc, top_k_overlap


_DESCRIPTION = """
Measures whether the attention of a text classifier says which tokens it used. Four questions: how concentrated is
attention (entropy over its maximum, tokens with weight)? Does it rank the tokens as an importance measure does
(Kendall's tau-b between attention and importance; for sparse attention also the overlap of the heaviest tokens, and
average precision of importance against the tokens with weight)? Do the predictions change when attention is replaced
(total variation distance and share of changed decisions between probs and counterfactual_probs)? How different is the
attention that replaced it (Jensen-Shannon divergence between attention and counterfactual_attention)? Undefined
instances are counted and enter no mean.
"""

_CITATION = """
@inproceedings{jain-wallace-2019-attention,
    title = "Attention is not Explanation",
    author = "Jain, Sarthak and Wallace, Byron C.",
    booktitle = "Proceedings of NAACL-HLT 2019",
    year = "2019",
    pages = "3543--3556",
    url = "https://aclanthology.org/N19-1357"
}
@inproceedings{serrano-smith-2019-attention,
    title = "Is Attention Interpretable?",
    author = "Serrano, Sofia and Smith, Noah A.",
    booktitle = "Proceedings of ACL 2019",
    year = "2019",
    pages = "2931--2951",
    url = "https://aclanthology.org/P19-1282"
}
@inproceedings{wiegreffe-pinter-2019-attention,
    title = "Attention is not not Explanation",
    author = "Wiegreffe, Sarah and Pinter, Yuval",
    booktitle = "Proceedings of EMNLP-IJCNLP 2019",
    year = "2019",
    pages = "11--20",
    url = "https://aclanthology.org/D19-1002"
}
@inproceedings{meister-etal-2021-sparse,
    title = "Is Sparse Attention more Interpretable?",
    author = "Meister, Clara and Lazov, Stefan and Augenstein, Isabelle and Cotterell, Ryan",
    booktitle = "Proceedings of ACL-IJCNLP 2021 (Volume 2: Short Papers)",
    year = "2021",
    pages = "122--129",
    url = "https://aclanthology.org/2021.acl-short.17"
}
"""

_KWARGS_DESCRIPTION = """
Columns, one row per instance, every one optional; at least attention, or both columns of probabilities:
    attention: T weights, non-negative, summing to 1 (leave out padding and begin/end markers; an empty row is an empty
        text).
    importance: T scores of the same tokens, any scale; compared with attention.
    probs: C class probabilities; compared with counterfactual_probs, and splits the agreement by predicted class.
    counterfactual_attention: T weights, non-negative, summing to 1: the attention that was put in place of attention.
    counterfactual_probs: C class probabilities that the model then gives.
    A row that is None is undefined.
Arguments:
    mask: for padded rows, 1 on tokens and 0 on padding, as long as the rows of tokens, which are cut to the tokens before
        anything else. Given with columns, to add_batch, or to add. By default all values are tokens; rows that look padded
        are refused.
    alpha: level of significance of tau, in 0..1. Default 0.05.
    n_bootstrap: resamples for the confidence interval of the mean tau. Default 1000.
    seed: fixes the resamples. Default 0.
    per_text: also return "per_text", a dict of lists with one number for each instance, in the order given (of several
        processes, in their order). Default False.
Returns a flat dict of floats and integers:
    n: instances.
    With attention: normalised_entropy (mean of the entropy over its maximum, 0: one token has all, 1: uniform),
        support_size (mean number of tokens with a weight above zero), share_of_zeros (mean share of the others, 0..1),
        and normalised_entropy_undefined (below two tokens), support_size_undefined, share_of_zeros_undefined (no tokens).
    With attention and importance: kendall_tau (mean tau-b, -1..1), kendall_tau_std (population), kendall_tau_ci_low
        and kendall_tau_ci_high (95 % bootstrap interval of the mean), kendall_tau_significant (share with p <= alpha
        of the defined), kendall_tau_undefined (count: below two tokens, or a constant row), tie_ceiling (mean of the
        largest |tau-b| the ties allow, 0..1), kendall_tau_over_ceiling (mean of tau over that ceiling). Not limited by
        ties: top_k_overlap (mean share of the k heaviest tokens of attention that are among the k of most importance,
        0..1; k a fifth of the tokens, rounded up, at most those with weight) and top_k_overlap_chance; support_auprc
        (mean average precision of importance against the tokens with weight, 0..1) and support_auprc_chance; and
        top_k_overlap_undefined, support_auprc_undefined (as tau, and where every token or none is chosen).
    With probs as well, tau for every predicted class c: kendall_tau_class_c, kendall_tau_class_c_std, ...,
        tie_ceiling_class_c, and kendall_tau_class_c_n (instances with a defined tau).
    With probs and counterfactual_probs: tvd, tvd_median, tvd_max (total variation distance, 0..1), tvd_undefined,
        flip_fraction (share of instances whose most probable class changes, 0..1), flip_fraction_undefined.
    With attention and counterfactual_attention: jsd, jsd_median, jsd_max (Jensen-Shannon divergence in nats,
        0..ln 2 = 0.693), jsd_undefined.
    Statistics of no defined instance are NaN.
    With per_text=True, "per_text" has each of normalised_entropy, support_size, share_of_zeros, kendall_tau,
        kendall_tau_significant (1.0 or 0.0), tie_ceiling, kendall_tau_over_ceiling, top_k_overlap,
        top_k_overlap_chance, support_auprc, support_auprc_chance, tvd, flip_fraction (1.0 where the class changes, else
        0.0) and jsd that the columns allow, NaN where undefined. The mean of what is defined is the result of that name.
Configurations, the second argument of `evaluate.load`, with columns of their own, all of them needed; the results are
n and, for each name, its mean and <name>_undefined, with per_text=True also its values:
    "erasure": whole_prob, the probability of the class predicted for the whole text; empty_prob, of the same class for
        the text without any token; kept_probs and removed_probs, for the tokens ranked first alone and for the text
        without them, S numbers each, one for each share of the tokens. Names: sufficiency_aopc, comprehensiveness_aopc
        (means over the shares, as ERASER's code), sufficiency_aopc_paper, comprehensiveness_aopc_paper (sums over
        S + 1, as its formula), normalised_sufficiency, normalised_comprehensiveness.
    "plausibility": scores, T numbers; rationale, 1 on the tokens that people marked and 0 elsewhere. Names:
        average_precision, trapezoid_auprc, and of the share of tokens with the largest scores token_f1, span_iou_f1.
        Argument share: in 0..1, by default the mean share of tokens that are marked.
    "alignment": links and gold_links, the links between the words of two sentences as text, "0-0 1-2 2p2" (source-target;
        - sure, p possible). Arguments links_from and gold_from, both needed: 0 or 1, the number of a first word.
        links_reversed: True where links name target-source. Columns source_length, target_length, words of the sentences,
        optional: then links beyond them are refused, and links that count from another number. Names, of sums over all
        sentences: alignment_error_rate, precision, recall, each with _ci_low and _ci_high (95 % bootstrap interval over
        sentences); and counts: links, links_sure, links_possible, gold_sure, undefined (sentences in no sum). per_text has
        the names for each sentence, whose mean is not the result.
Raises ValueError (InputError), naming the column and the row, for what is no column of numbers, for rows of a pair that
differ in length, for a distribution that is none, and for rows that look padded.
Examples:
    >>> import evaluate
    >>> metric = evaluate.load("attention_faithfulness")
    >>> results = metric.compute(
    ...     attention=[[0.1, 0.2, 0.7], [0.0, 0.0, 1.0]],
    ...     importance=[[1.0, 3.0, 2.0], [0.1, 0.2, 0.3]],
    ... )
    >>> {name: round(results[name], 3) for name in ("kendall_tau", "tie_ceiling", "kendall_tau_over_ceiling")}
    {'kendall_tau': 0.575, 'tie_ceiling': 0.908, 'kendall_tau_over_ceiling': 0.667}
    >>> results["n"], results["kendall_tau_undefined"]
    (2, 0)
    >>> results = metric.compute(
    ...     attention=[[0.75, 0.25]],
    ...     counterfactual_attention=[[0.25, 0.75]],
    ...     probs=[[0.5, 0.5]],
    ...     counterfactual_probs=[[0.25, 0.75]],
    ... )
    >>> {name: round(results[name], 3) for name in ("tvd", "flip_fraction", "jsd")}
    {'tvd': 0.25, 'flip_fraction': 1.0, 'jsd': 0.131}
    >>> erasure = evaluate.load("attention_faithfulness", "erasure")
    >>> results = erasure.compute(whole_prob=[0.9], kept_probs=[[0.8]], removed_probs=[[0.4]], empty_prob=[0.5])
    >>> {name: round(results[name], 3) for name in ("sufficiency_aopc", "comprehensiveness_aopc")}
    {'sufficiency_aopc': 0.1, 'comprehensiveness_aopc': 0.5}
    >>> plausibility = evaluate.load("attention_faithfulness", "plausibility")
    >>> plausibility.compute(scores=[[0.1, 0.7, 0.2]], rationale=[[1, 1, 0]])["token_f1"]
    0.5
    >>> alignment = evaluate.load("attention_faithfulness", "alignment")
    >>> results = alignment.compute(links=["0-0 1-1 2-2"], gold_links=["1-1 2p2 2-3"], links_from=0, gold_from=1)
    >>> {name: round(results[name], 3) for name in ("alignment_error_rate", "precision", "recall")}
    {'alignment_error_rate': 0.4, 'precision': 0.667, 'recall': 0.5}
"""

_ROW = datasets.Sequence(datasets.Value("float64"))
_NUMBER = datasets.Value("float64")
_TEXT = datasets.Value("string")
_UNKNOWN = "?"  # how a row of links that is None is kept: a text may not be None
_COLUMNS = {
    "default": {
        "attention": _ROW,
        "importance": _ROW,
        "probs": _ROW,
        "counterfactual_attention": _ROW,
        "counterfactual_probs": _ROW,
    },
    "erasure": {"whole_prob": _NUMBER, "kept_probs": _ROW, "removed_probs": _ROW, "empty_prob": _NUMBER},
    "plausibility": {"scores": _ROW, "rationale": _ROW},
    "alignment": {"links": _TEXT, "gold_links": _TEXT, "source_length": _NUMBER, "target_length": _NUMBER},
}
_DISTRIBUTIONS = ("attention", "probs", "counterfactual_attention", "counterfactual_probs")
_PAIRS = (
    ("attention", "importance"),
    ("probs", "counterfactual_probs"),
    ("attention", "counterfactual_attention"),
)
_OVER_TOKENS = ("attention", "importance", "counterfactual_attention", "scores", "rationale")
_PADDED = (("attention", "importance"), ("scores", "rationale"))  # both are 0 on padding
# something can be computed from
_SUFFICIENT = (("attention",), *_PAIRS)
# statistic of `agreement` -> what follows "kendall_tau" in the result
_AGREEMENT_NAMES = {
    "tau_mean": "",
    "tau_std": "_std",
    "ci_low": "_ci_low",
    "ci_high": "_ci_high",
    "share_significant": "_significant",
    "n_undefined": "_undefined",
    "tau_over_ceiling": "_over_ceiling",
}


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class AttentionFaithfulness(evaluate.Metric):
    def _info(self):
        if self.config_name not in _COLUMNS:
            raise InputError(f"no configuration is called {self.config_name!r}; choose one of {', '.join(_COLUMNS)}")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(_COLUMNS[self.config_name]),
            reference_urls=[
                "https://aclanthology.org/N19-1357",
                "https://aclanthology.org/P19-1282",
                "https://aclanthology.org/D19-1002",
                "https://aclanthology.org/2021.acl-short.17",
            ],
        )

    def compute(
        self,
        *,
        alpha=0.05,
        n_bootstrap=1000,
        seed=0,
        share=None,
        mask=None,
        per_text=False,
        links_from=None,
        gold_from=None,
        links_reversed=False,
        **columns,
    ):
        """Results over the columns given here, or over all that were added before. Absent columns stay out."""
        check_settings(alpha, n_bootstrap, seed)
        if not isinstance(per_text, bool):
            raise InputError(f"per_text is {short(per_text)}; give True for a number per instance, or False")
        if share is not None:
            if self.config_name != "plausibility":
                raise InputError(f'share is {short(share)}; give it to the configuration "plausibility" alone')
            check_share(share, "the share of tokens of a rationale")
        columns = self._known(columns)
        if columns or mask is not None:
            counting = {"links_from": links_from, "gold_from": gold_from, "links_reversed": links_reversed}
            self.add_batch(mask=mask, **counting, **columns)
        elif self.writer is None:
            raise InputError(f"nothing to compute from: no column was given or added. {self._what_to_give()}")
        return super().compute(alpha=alpha, n_bootstrap=n_bootstrap, seed=seed, share=share, per_text=per_text)

    def add_batch(self, *, mask=None, links_from=None, gold_from=None, links_reversed=False, **columns):
        """Add instances: each column a sequence with one row per instance; the same columns in every call."""
        columns = self._checked(columns, mask, links_from, gold_from, links_reversed)
        n = len(next(iter(columns.values())))
        super().add_batch(**{name: columns.get(name, [None] * n) for name in self._feature_names()})

    def add(self, *, mask=None, links_from=None, gold_from=None, links_reversed=False, **columns):
        """Add one instance: each column one row."""
        columns = {name: [row] for name, row in self._known(columns).items()}
        columns = self._checked(columns, None if mask is None else [mask], links_from, gold_from, links_reversed)
        super().add(**{name: columns.get(name, [None])[0] for name in self._feature_names()})

    def _known(self, columns):
        """The columns that are not None, or InputError where the metric has none of that name."""
        columns = {name: rows for name, rows in columns.items() if rows is not None}
        if unknown := [name[:SHOWN] for name in columns if name not in self.features]:
            raise InputError(f"unknown columns {unknown[:8]}; the columns are {self._feature_names()}")
        return columns

    def _checked(self, columns, mask, links_from, gold_from, links_reversed):
        """The columns that were given as numbers, or InputError: checked first, so that nothing of a bad batch is stored."""
        columns = self._known(columns)
        if not any(set(needed) <= set(columns) for needed in self._sufficient()):
            raise InputError(f"nothing can be computed from the columns {sorted(columns)}. {self._what_to_give()}")
        counting = (links_from, gold_from, links_reversed)
        if self.config_name == "alignment":
            if mask is not None:
                raise InputError("mask is of tokens, and links are between words: leave it out")
            return _read_links(*counting, **columns)
        if counting != (None, None, False):
            raise InputError('links_from, gold_from and links_reversed are of links; give them to "alignment" alone')
        read = {name: number_rows if self.features[name] == _ROW else numbers for name in columns}
        columns = {name: read[name](rows, name) for name, rows in columns.items()}
        counts = {name: len(rows) for name, rows in columns.items()}
        if len(set(counts.values())) > 1:
            raise InputError(f"the columns differ in their number of rows: {counts}; give one per instance")
        over_tokens = {name: columns[name] for name in _OVER_TOKENS if name in columns}
        if mask is not None:
            if not over_tokens:
                raise InputError(f"mask is of tokens, and the columns {sorted(columns)} have none: leave it out")
            columns |= masked(over_tokens, mask)
        for first, second in _PADDED:
            if mask is None and first in columns and second in columns:
                check_padding(columns, first, second)
        if self.config_name != "default":
            _RESULTS[self.config_name](**columns)  # which checks them
            return columns
        for name in _DISTRIBUTIONS:
            if name in columns:
                check_distributions(columns[name], name)
        for x, y in _PAIRS:
            if x in columns and y in columns:
                flatten_pair(columns[x], columns[y], (x, y))
        return columns

    def _sufficient(self):
        """Which columns are enough to compute something from."""
        if self.config_name == "default":
            return _SUFFICIENT
        return (("links", "gold_links"),) if self.config_name == "alignment" else (tuple(self._feature_names()),)

    def _what_to_give(self):
        return "Give " + ", or ".join(" and ".join(needed) for needed in self._sufficient())

    def _compute(self, share, per_text, **arguments):
        if self.config_name == "default":
            results, of_texts = self._faithfulness(**arguments)
        elif self.config_name == "alignment":
            results, of_texts = _alignment(**arguments)
        else:
            columns = {name: arguments[name] for name in self._feature_names()}
            of_texts = _RESULTS[self.config_name](**columns, **({} if share is None else {"share": share}))
            results = {"n": len(next(iter(columns.values())))}
            for name, values in of_texts.items():
                results |= _mean(name, values)
        if per_text:
            results["per_text"] = {name: values.astype(float).tolist() for name, values in of_texts.items()}
        return results

    def _faithfulness(
        self,
        attention,
        importance,
        probs,
        counterfactual_attention,
        counterfactual_probs,
        alpha,
        n_bootstrap,
        seed,
    ):
        """The results, and of those that are means the numbers of each instance, name -> [N]."""
        results = {"n": len(attention)}
        of_texts = {}
        if _given(attention):
            for function in (normalised_entropy, support_size, share_of_zeros):
                of_texts[function.__name__] = function(attention)
                results |= _mean(function.__name__, of_texts[function.__name__])
        if _given(attention, importance):
            predicted = _predicted_class(probs) if _given(probs) else None
            of_agreement = agreement_by_text(attention, importance, alpha)
            results |= _agreement_results(summaries(of_agreement, predicted, n_bootstrap, seed))
            of_texts |= of_agreement
            for function in (top_k_overlap, support_auprc):
                name = function.__name__
                of_texts[name], of_texts[f"{name}_chance"] = function(attention, importance)
                results |= _mean(name, of_texts[name])
                results[f"{name}_chance"] = _mean("chance", of_texts[f"{name}_chance"])["chance"]
        if _given(probs, counterfactual_probs):
            of_texts["tvd"] = total_variation_distance(probs, counterfactual_probs)
            results |= _summary("tvd", of_texts["tvd"])
            of_texts["flip_fraction"] = decision_flips(probs, counterfactual_probs)
            flips = flip_fraction(probs, counterfactual_probs)
            results["flip_fraction"] = flips["flip_fraction"]
            results["flip_fraction_undefined"] = flips["n_undefined"]
        if _given(attention, counterfactual_attention):
            of_texts["jsd"] = jensen_shannon_divergence(attention, counterfactual_attention)
            results |= _summary("jsd", of_texts["jsd"])
        return results, of_texts


def _erasure(whole_prob, kept_probs, removed_probs, empty_prob):
    """`erasure_results` of columns in which a row may be None."""
    size = next((len(row) for row in (*kept_probs, *removed_probs) if row is not None), 1)
    kept, removed = ([[np.nan] * size if row is None else row for row in column] for column in (kept_probs, removed_probs))
    for name, column in (("kept_probs", kept), ("removed_probs", removed)):
        if strangers := [place for place, row in enumerate(column) if len(row) != size]:
            place = strangers[0]
            raise InputError(f"row {place}: {name} has {len(column[place])} values and others {size}; give one per share")
    whole, empty = (np.asarray(column, np.float64) for column in (whole_prob, empty_prob))
    return erasure_results(whole, np.reshape(kept, (-1, size)), np.reshape(removed, (-1, size)), empty)


def _read_links(links_from, gold_from, links_reversed, links, gold_links, source_length=None, target_length=None):
    """The columns of "alignment", their links as text from 0, source first: as they are kept until they are counted."""
    if not isinstance(links_reversed, bool):
        raise InputError(f"links_reversed is {short(links_reversed)}; give True where links name the target word first")
    lengths = {"source": source_length, "target": target_length}
    lengths = {side: numbers(column, f"{side}_length") for side, column in lengths.items() if column is not None}
    given = read_links(links, "links", start=links_from, reverse=links_reversed, lengths=lengths)
    gold = read_links(gold_links, "gold_links", start=gold_from, lengths=lengths)
    if len(given) != len(gold):
        raise InputError(f"there are {len(given)} rows of links and {len(gold)} of gold_links; give one per sentence")
    columns = {"links": given, "gold_links": gold}
    texts = {name: [_UNKNOWN if row is None else written_links(row) for row in rows] for name, rows in columns.items()}
    return texts | {f"{side}_length": column for side, column in lengths.items()}


def _alignment(links, gold_links, n_bootstrap, seed, **_):
    """The results, and NAMES of each sentence, [N] each."""
    links, gold = (parsed_links([None if row == _UNKNOWN else row for row in rows]) for rows in (links, gold_links))
    scores = alignment_scores(link_counts(links, gold)).T
    return {"n": len(gold)} | alignment_results(links, gold, n_bootstrap, seed), dict(
        zip(ALIGNMENT_NAMES, scores, strict=True)
    )


_RESULTS = {"erasure": _erasure, "plausibility": plausibility_results}


def _given(*columns):
    """Whether each column has a row; columns that were left out are all None. Without any instance all count as
    given."""
    return all(len(column) == 0 or any(row is not None for row in column) for column in columns)


def _predicted_class(probs):
    """Most probable class per instance, [N]; the lower one on equal probability, NaN for an undefined row."""
    known = [row is not None and len(row) > 0 and not np.isnan(np.asarray(row, dtype=float)).any() for row in probs]
    return [np.argmax(row) if is_known else np.nan for row, is_known in zip(probs, known, strict=True)]


def _agreement_results(groups):
    results = {}
    for group, values in groups.items():
        suffix = "" if group == "overall" else f"_class_{group}"
        results |= {f"kendall_tau{suffix}{end}": values[name] for name, end in _AGREEMENT_NAMES.items()}
        results[f"tie_ceiling{suffix}"] = values["tie_ceiling"]
        if suffix:
            results[f"kendall_tau{suffix}_n"] = values["n"]
    return results


def _mean(name, values):
    """Mean of the defined values, and how many are undefined."""
    defined = values[~np.isnan(values)]
    mean = float(np.mean(defined)) if len(defined) else float("nan")
    return {name: mean, f"{name}_undefined": len(values) - len(defined)}


def _summary(name, values):
    """Mean, median and largest of the defined values, and how many are undefined."""
    defined = values[~np.isnan(values)]
    statistics = {f"{name}_median": np.median, f"{name}_max": np.max}
    others = {key: float(of(defined)) if len(defined) else float("nan") for key, of in statistics.items()}
    return _mean(name, values) | others

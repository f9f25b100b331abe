"""Does attention explain what a model does? The measures of the debate, as one `evaluate` metric.

This folder is closed: `evaluate.load` copies the files that this script imports from beside it, with one dot, and no
others."""

from numbers import Real

import datasets
import evaluate
import numpy as np

from .alignment_error_rate import (
    NAMES,
    alignment_results,
    alignment_scores,
    link_counts,
    parsed_links,
    read_links,
    written_links,
)
from .columns import (
    SHOWN,
    ZEROS_ARE_TOKENS,
    InputError,
    check_padding,
    check_share,
    flatten,
    flatten_pair,
    masked,
    number_rows,
    numbers,
    short,
)
from .dispersion import normalised_entropy, share_of_zeros, support_size
from .divergences import (
    check_distributions,
    decision_flips,
    decisions,
    jensen_shannon_divergence,
    total_variation_distance,
)
from .erasure_curves import erasure_results
from .plausibility import plausibility_results
from .rank_agreement import agreement_by_text, summaries


_DESCRIPTION = """
Measures whether the attention of a text classifier says which tokens it used. Four questions: how concentrated is
attention? Does it rank the tokens as an importance measure does (Kendall's tau-b)? Do the predictions change when attention
is replaced (total variation distance, share of changed decisions)? How different is the attention that replaced it
(Jensen-Shannon divergence)? Undefined instances are counted and enter no mean.
"""

_REFERENCES = {
    "Jain & Wallace (2019), Attention is not Explanation": "https://aclanthology.org/N19-1357",
    "Serrano & Smith (2019), Is Attention Interpretable?": "https://aclanthology.org/P19-1282",
    "Wiegreffe & Pinter (2019), Attention is not not Explanation": "https://aclanthology.org/D19-1002",
    "Meister et al. (2021), Is Sparse Attention more Interpretable?": "https://aclanthology.org/2021.acl-short.17",
}

_KWARGS_DESCRIPTION = """
Columns, one row per instance, every one optional; at least attention, or both columns of probabilities. A row that is None
is undefined.
    attention: T weights, non-negative, summing to 1, without padding; an empty row is an empty text.
    importance: T scores of the same tokens, any scale; compared with attention.
    probs: C class probabilities; compared with counterfactual_probs, and splits the agreement by predicted class.
    counterfactual_attention: T weights, as attention: those that were put in its place.
    counterfactual_probs: C class probabilities that the model then gives.
Arguments:
    mask: for padded rows, 1 on tokens and 0 on padding. Without it, rows of one length of which any begins or ends in
        attention that is exactly 0 are refused. "none": zeros are tokens, as in sparse attention.
    alpha: level of significance of tau, in 0..1. Default 0.05.
    per_text: also return "per_text", a dict of lists with one number for each instance. Default False.
Returns a flat dict of floats and integers: n, the number of instances; means over the instances where they are defined; and
with _undefined at the end the count of the others. A statistic of no defined instance is NaN.
    attention: normalised_entropy, support_size, share_of_zeros.
    attention and importance: kendall_tau (tau-b) with its interval and tie_ceiling, the largest |tau-b| that ties allow.
        With probs as well, kendall_tau_class_c for every class c.
    probs and counterfactual_probs: tvd (total variation distance), flip_fraction (changed decisions).
    attention and counterfactual_attention: jsd (Jensen-Shannon divergence in nats).
The configurations "erasure", "plausibility" and "alignment", second argument of `evaluate.load`, have columns of their own:
see the card, which explains every number.
Raises ValueError (InputError), naming the column and the row, for input that cannot be computed from.
Examples:
    >>> import evaluate
    >>> metric = evaluate.load("attention_faithfulness")
    >>> results = metric.compute(
    ...     attention=[[0.1, 0.2, 0.7], [0.0, 0.0, 1.0]],
    ...     importance=[[1.0, 3.0, 2.0], [0.1, 0.2, 0.3]],
    ...     mask="none",
    ... )
    >>> {name: round(results[name], 3) for name in ("kendall_tau", "tie_ceiling", "kendall_tau_over_ceiling")}
    {'kendall_tau': 0.575, 'tie_ceiling': 0.908, 'kendall_tau_over_ceiling': 0.667}
    >>> results["n"], results["kendall_tau_undefined"]
    (2, 0)
"""

_ROW = datasets.Sequence(datasets.Value("float64"))
_NUMBER = datasets.Value("float64")
_TEXT = datasets.Value("string")
_UNDEFINED_LINKS = "?"  # stored for a row of links that is None: evaluate takes no None in a column of texts
_DEFAULT = ("attention", "importance", "probs", "counterfactual_attention", "counterfactual_probs")
_COLUMNS = {
    "default": dict.fromkeys(_DEFAULT, _ROW),
    "erasure": {"whole_prob": _NUMBER, "kept_probs": _ROW, "removed_probs": _ROW, "empty_prob": _NUMBER},
    "plausibility": {"scores": _ROW, "rationale": _ROW},
    "alignment": {"links": _TEXT, "gold_links": _TEXT, "source_length": _NUMBER, "target_length": _NUMBER},
}
# the columns of which one group is enough to compute something
_SUFFICIENT = {
    "default": (("attention",), ("probs", "counterfactual_probs")),
    "erasure": (("whole_prob", "kept_probs", "removed_probs", "empty_prob"),),
    "plausibility": (("scores", "rationale"),),
    "alignment": (("links", "gold_links"),),
}
_LINK_SETTINGS = ("links_from", "gold_from", "links_reversed")
_OVER_TOKENS = ("attention", "importance", "counterfactual_attention", "scores", "rationale")
_ZERO_ON_PADDING = {"default": ("attention",), "plausibility": ("scores", "rationale")}
# columns -> numbers of each instance, by their names in the results
_BY_TEXT = {
    ("attention",): {f.__name__: f for f in (normalised_entropy, support_size, share_of_zeros)},
    ("probs", "counterfactual_probs"): {"tvd": total_variation_distance, "flip_fraction": decision_flips},
    ("attention", "counterfactual_attention"): {"jsd": jensen_shannon_divergence},
}
_PAIRS = (("attention", "importance"), *list(_BY_TEXT)[1:])
_WITH_EXTREMES = ("tvd", "jsd")  # of these the results hold the median and the maximum too
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
    def __init__(self, *arguments, mask=None, **settings):
        self.mask = mask  # of calls that give none, such as those of evaluate.combine
        super().__init__(*arguments, **settings)

    def _info(self):
        if self.config_name not in _COLUMNS:
            raise InputError(f"no configuration is called {self.config_name!r}; choose one of {', '.join(_COLUMNS)}")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="\n".join(_REFERENCES),
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(_COLUMNS[self.config_name]),
            reference_urls=list(_REFERENCES.values()),
        )

    def compute(self, *, alpha=0.05, share=None, mask=None, per_text=False, **columns):
        """Results over the columns given here, or over all that were added before. Absent columns stay out."""
        if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 <= alpha <= 1:
            raise InputError(f"alpha is {short(alpha)}; a level of significance lies in 0..1")
        if share is not None:
            if self.config_name != "plausibility":
                raise InputError(f'share is {short(share)}; give it to the configuration "plausibility" alone')
            check_share(share, "the share of tokens of a rationale")
        columns = self._present(columns)
        if columns or mask is not None:
            self.add_batch(mask=mask, **columns)
        elif self.writer is None:
            self._checked({}, None)
        return super().compute(alpha=alpha, share=share, per_text=per_text)

    def add_batch(self, *, mask=None, **columns):
        """Add instances: each column a sequence with one row per instance; the same columns in every call."""
        columns = self._checked(columns, mask)
        n = len(next(iter(columns.values())))
        super().add_batch(**{name: columns.get(name, [None] * n) for name in self._feature_names()})

    def add(self, *, mask=None, **columns):
        """Add one instance: each column one row."""
        columns = {name: [row] if name in self.features else row for name, row in self._present(columns).items()}
        columns = self._checked(columns, mask if mask is None or isinstance(mask, str) else [mask])
        super().add(**{name: columns.get(name, [None])[0] for name in self._feature_names()})

    def _present(self, columns):
        """The columns that are not None, or InputError where the metric has none of that name."""
        columns = {name: rows for name, rows in columns.items() if rows is not None}
        allowed = [*self._feature_names(), *(_LINK_SETTINGS if self.config_name == "alignment" else ())]
        unknown = [name[:SHOWN] for name in columns if name not in allowed]
        if unknown:
            raise InputError(f"unknown columns {unknown[:8]}; choose among {allowed}")
        return columns

    def _checked(self, columns, mask):
        """The columns as they are stored: checked before anything of a bad batch is."""
        columns = self._present(columns)
        if not any(set(group) <= set(columns) for group in _SUFFICIENT[self.config_name]):
            enough = ", or ".join(" and ".join(group) for group in _SUFFICIENT[self.config_name])
            raise InputError(f"nothing can be computed from the columns {sorted(columns)}; give {enough}")
        over_tokens = [name for name in _OVER_TOKENS if name in columns]
        if mask is not None and not over_tokens:
            raise InputError(f"mask selects tokens, and the columns {sorted(columns)} have none: leave it out")
        if self.config_name == "alignment":
            return _read_links(**columns)
        for name, rows in columns.items():
            columns[name] = number_rows(rows, name) if self.features[name] == _ROW else numbers(rows, name)
        counts = {name: len(rows) for name, rows in columns.items()}
        if len(set(counts.values())) > 1:
            raise InputError(f"the columns differ in their number of rows: {counts}; give one per instance")
        columns |= self._without_padding({name: columns[name] for name in over_tokens}, mask)
        if self.config_name == "erasure":
            _erasure(**columns)
        elif self.config_name == "plausibility":
            plausibility_results(**columns)
        else:
            for name, rows in columns.items():
                if name != "importance":
                    check_distributions(rows, name)
            for pair in _PAIRS:
                if set(pair) <= set(columns):
                    flatten_pair(columns[pair[0]], columns[pair[1]], pair)
        return columns

    def _without_padding(self, over_tokens, mask):
        """The columns of tokens, cut to their tokens."""
        mask = self.mask if mask is None else mask
        if mask is None:
            zero = {name: over_tokens[name] for name in _ZERO_ON_PADDING.get(self.config_name, ()) if name in over_tokens}
            if zero:
                check_padding(zero)
        elif not isinstance(mask, str):
            return masked(over_tokens, mask)
        elif mask != ZEROS_ARE_TOKENS:
            raise InputError(f'mask is {short(mask)}; give rows of 1 on tokens and 0 on padding, or "{ZEROS_ARE_TOKENS}"')
        return over_tokens

    def _compute(self, share, per_text, alpha, **columns):
        n = len(next(iter(columns.values())))
        if self.config_name == "default":
            results, by_text = _faithfulness(columns, alpha)
        elif self.config_name == "alignment":
            results, by_text = _alignment(columns["links"], columns["gold_links"])
        else:
            by_text = _erasure(**columns) if self.config_name == "erasure" else plausibility_results(**columns, share=share)
            results = _means(by_text)
        results = {"n": n, **results}
        if per_text:
            results["per_text"] = {name: values.astype(float).tolist() for name, values in by_text.items()}
        return results


def _faithfulness(columns, alpha):
    """The results, and the numbers of each instance behind the means, name -> [N]."""
    by_text = {}
    for names, functions in _BY_TEXT.items():
        rows = [columns[name] for name in names]
        if _present_in(*rows):
            by_text |= {name: function(*rows) for name, function in functions.items()}
    results, pair = _means(by_text), (columns["attention"], columns["importance"])
    if _present_in(*pair):
        predicted = decisions(*flatten(columns["probs"], "probs")) if _present_in(columns["probs"]) else None
        agreement = agreement_by_text(*pair, alpha)
        by_text |= agreement
        for group, values in summaries(agreement, predicted).items():
            suffix = "" if group == "overall" else f"_class_{group}"
            results |= {f"kendall_tau{suffix}{end}": values[name] for name, end in _AGREEMENT_NAMES.items()}
            results[f"tie_ceiling{suffix}"] = values["tie_ceiling"]
            if suffix:
                results[f"kendall_tau{suffix}_n"] = values["n"]
    return results, by_text


def _erasure(whole_prob, kept_probs, removed_probs, empty_prob):
    """`erasure_results` of columns in which a row may be None."""
    columns = {"kept_probs": kept_probs, "removed_probs": removed_probs}
    shares, filled = next((len(row) for rows in columns.values() for row in rows if row is not None), 1), []
    for name, rows in columns.items():
        rows = [[np.nan] * shares if row is None else row for row in rows]
        for place, row in enumerate(rows):
            if len(row) != shares:
                raise InputError(f"row {place}: {name} has {len(row)} values and others {shares}; give one per share")
        filled.append(np.reshape(rows, (-1, shares)))
    whole, empty = (np.asarray(column, np.float64) for column in (whole_prob, empty_prob))
    return erasure_results(whole, *filled, empty)


def _read_links(
    links, gold_links, source_length=None, target_length=None, links_from=None, gold_from=None, links_reversed=False
):
    """The columns of "alignment" as they are stored: links as text from 0, source first."""
    columns = {"source": source_length, "target": target_length}
    lengths = {side: numbers(column, f"{side}_length") for side, column in columns.items() if column is not None}
    predicted = read_links(links, "links", start=links_from, reverse=links_reversed, lengths=lengths)
    gold = read_links(gold_links, "gold_links", start=gold_from, lengths=lengths)
    link_counts(predicted, gold)  # raises InputError where they differ in number
    stored = {f"{side}_length": column for side, column in lengths.items()}
    for name, rows in (("links", predicted), ("gold_links", gold)):
        stored[name] = [_UNDEFINED_LINKS if row is None else written_links(row) for row in rows]
    return stored


def _alignment(*columns):
    """The results, and NAMES of each sentence, [N] each."""
    links, gold = (parsed_links([None if row == _UNDEFINED_LINKS else row for row in rows]) for rows in columns)
    return alignment_results(links, gold), dict(zip(NAMES, alignment_scores(link_counts(links, gold)).T, strict=True))


def _present_in(*columns):
    """Whether each column has a row; columns that were left out are all None. Without any instance all columns count."""
    return all(len(column) == 0 or any(row is not None for row in column) for column in columns)


def _statistic(function, values):
    """A statistic of the defined values; NaN where there is none."""
    defined = values[~np.isnan(values)]
    return float(function(defined)) if len(defined) else float("nan")


def _means(by_text):
    """The means, and how many values are undefined; of some the median and the maximum too."""
    results = {}
    for name, values in by_text.items():
        results |= {name: _statistic(np.mean, values), f"{name}_undefined": int(np.isnan(values).sum())}
        if name in _WITH_EXTREMES:
            results |= {f"{name}_median": _statistic(np.median, values), f"{name}_max": _statistic(np.max, values)}
    return results

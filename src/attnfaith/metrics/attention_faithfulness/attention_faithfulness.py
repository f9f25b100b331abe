"""Does attention explain what a model does? The measures of the debate, as one `evaluate` metric.

This folder is closed: `evaluate.load` copies the files that this script imports from beside it, with one dot, and no
others."""

from numbers import Real

import datasets
import evaluate
import numpy as np

from .alignment_error_rate import link_columns, link_results
from .columns import SHOWN, InputError, by_row, check_share, number_rows, numbers, paired, short, without_padding
from .divergences import (
    decision_flips,
    distribution_fault,
    jensen_shannon_divergence,
    normalised_entropy,
    share_of_zeros,
    support_size,
    total_variation_distance,
)
from .erasure_curves import erasure_results
from .plausibility import marks_fault, plausibility_results
from .rank_agreement import agreement, agreement_by_text


_DESCRIPTION = """
Measures whether the attention of a text classifier says which tokens it used: how concentrated it is, whether it ranks the
tokens as an importance measure does, and whether predictions change when it is replaced. Undefined instances are counted
and enter no mean.
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
    attention, counterfactual_attention: T weights, non-negative, summing to 1, without padding; those put in their place.
    importance: T scores of the same tokens, any scale.
    probs, counterfactual_probs: C class probabilities; those that the model gives under the other attention.
Arguments:
    mask: for padded rows, 1 on tokens and 0 on padding; "none": zeros are tokens, as in sparse attention.
    alpha: level of significance of tau, in 0..1. Default 0.05.
    per_text: also return "per_text", a dict of lists with one number for each instance. Default False.
Returns a flat dict of floats and integers: n instances; the means over those where a number is defined, NaN where none is;
and with _undefined at the end the count of the others. The card explains every number, and the configurations "erasure",
"plausibility" and "alignment", second argument of `evaluate.load`, with columns of their own.
Raises ValueError (InputError), naming the column and the row, for input that cannot be computed from.
Examples:
    >>> import evaluate
    >>> metric = evaluate.load("attention_faithfulness")
    >>> attention, importance = [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0]], [[1.0, 3.0, 2.0], [0.1, 0.2, 0.3]]
    >>> results = metric.compute(attention=attention, importance=importance, mask="none")
    >>> round(results["kendall_tau"], 3), round(results["kendall_tau_over_ceiling"], 3), results["n"]
    (0.575, 0.667, 2)
"""

_ROW = datasets.Sequence(datasets.Value("float64"))
_NUMBER = datasets.Value("float64")
_TEXT = datasets.Value("string")
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
_PAIRS = (("attention", "importance"), ("scores", "rationale"), *list(_BY_TEXT)[1:])
_FAULTS = {name: distribution_fault for name in _DEFAULT if name != "importance"} | {"rationale": marks_fault}
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
            return link_columns(**columns)
        for name, rows in columns.items():
            columns[name] = number_rows(rows, name) if self.features[name] == _ROW else numbers(rows, name)
        counts = {name: len(rows) for name, rows in columns.items()}
        if len(set(counts.values())) > 1:
            raise InputError(f"the columns differ in their number of rows: {counts}; give one per instance")
        names = [name for name in _ZERO_ON_PADDING.get(self.config_name, ()) if name in columns]
        mask = self.mask if mask is None else mask
        columns |= without_padding({name: columns[name] for name in over_tokens}, mask, names)
        if self.config_name == "erasure":
            _erasure(**columns)
        for names in (*((name,) for name in _FAULTS), *_PAIRS):
            if set(names) <= set(columns):
                paired({name: columns[name] for name in names}, _FAULTS)
        return columns

    def _compute(self, share, per_text, alpha, **columns):
        n = len(next(iter(columns.values())))
        if self.config_name == "default":
            results, by_text = _faithfulness(columns, alpha)
        elif self.config_name == "alignment":
            results, by_text = link_results(columns["links"], columns["gold_links"])
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
        predicted = by_row(np.argmax, {"probs": columns["probs"]}) if _present_in(columns["probs"]) else None
        ranks = agreement_by_text(*pair, alpha)
        by_text |= ranks
        for group, values in agreement(ranks, predicted).items():
            suffix = "" if group == "overall" else f"_class_{group}"
            results |= {f"kendall_tau{suffix}{end}": values[name] for name, end in _AGREEMENT_NAMES.items()}
            results[f"tie_ceiling{suffix}"] = values["tie_ceiling"]
            if suffix:
                results[f"kendall_tau{suffix}_n"] = values["n"]
    return results, by_text


def _erasure(whole_prob, kept_probs, removed_probs, empty_prob):
    """`erasure_results` of columns in which a row may be None."""
    filled = []
    shares = max((len(row) for row in (*kept_probs, *removed_probs) if row is not None), default=1)
    for name, rows in (("kept_probs", kept_probs), ("removed_probs", removed_probs)):
        rows = [[np.nan] * shares if row is None else row for row in rows]
        for place, row in enumerate(rows):
            if len(row) != shares:
                raise InputError(f"row {place}: {name} has {len(row)} values and others {shares}; give one per share")
        filled.append(np.reshape(rows, (-1, shares)))
    return erasure_results(whole_prob, *filled, empty_prob)


def _present_in(*columns):
    """Whether each column has a row; columns that were left out are all None. Without any instance all columns count."""
    return all(len(column) == 0 or any(row is not None for row in column) for column in columns)


def _means(by_text):
    """The means of the defined values, NaN of none, and how many are undefined; of some the median and the maximum too."""
    results = {}
    for name, values in by_text.items():
        defined, statistics = values[~np.isnan(values)], {name: np.mean}
        if name in _WITH_EXTREMES:
            statistics |= {f"{name}_median": np.median, f"{name}_max": np.max}
        results |= {key: float(function(defined)) if len(defined) else np.nan for key, function in statistics.items()}
        results[f"{name}_undefined"] = len(values) - len(defined)
    return results

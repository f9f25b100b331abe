"""Plausible bugs: small changes to the library that a tired person could make, each of which some test must notice.

A mutant replaces one piece of text that stands exactly once in a file. Its tests are those of the file, in the order in
which they are tried. To add one: a line in MUTANTS, under its file.
"""

from dataclasses import dataclass


METRIC = "src/attnfaith/metrics/attention_faithfulness"
SUBJECTS = "src/attnfaith/subjects"
EXPERIMENTS, IMPORTANCE, MODELS = "src/attnfaith/experiments", "src/attnfaith/importance", "src/attnfaith/models"
OBJECTIVES = "src/attnfaith/objectives"
SEQUENCES = "src/attnfaith/sequences"
REPORTING, MEISTER = "src/attnfaith/reporting", "recipes/meister_2021/sparsity"


@dataclass(frozen=True)
class Mutant:
    """file: relative to the root of the project. bug: what is wrong in words. old, new: the text and what takes its place.
    tests: files or folders of tests that are to notice.
    """

    file: str
    bug: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def layer(self) -> str:
        """ "mathematics", or "verdicts": statistics, verdicts and advice."""
        return "verdicts" if self.file.startswith((REPORTING, "recipes/", "src/attnfaith/stats.py")) else "mathematics"


TESTS = {
    f"{METRIC}/rank_agreement.py": ("tests/metrics/test_rank_agreement.py", "tests/metrics/test_attention_faithfulness.py"),
    f"{METRIC}/divergences.py": ("tests/metrics/test_divergences.py",),
    f"{METRIC}/dispersion.py": ("tests/metrics/test_dispersion.py",),
    f"{METRIC}/erasure_curves.py": ("tests/metrics/test_erasure_curves.py",),
    f"{METRIC}/plausibility.py": ("tests/metrics/test_plausibility.py",),
    f"{METRIC}/support_agreement.py": ("tests/metrics/test_support_agreement.py",),
    f"{METRIC}/alignment_error_rate.py": ("tests/metrics/test_alignment_error_rate.py",),
    "src/attnfaith/metrics/extraction.py": ("tests/metrics/test_extraction.py",),
    "src/attnfaith/metrics/classification.py": ("tests/metrics/test_classification.py",),
    f"{REPORTING}/readings.py": ("tests/reporting/test_report_alignment.py",),
    f"{REPORTING}/sections/cross_interventions.py": ("tests/reporting/test_report_cross_interventions.py",),
    f"{EXPERIMENTS}/permutation.py": ("tests/experiments/test_permutation.py",),
    f"{EXPERIMENTS}/_erasing.py": ("tests/experiments/test_erasure.py", "tests/experiments/test_minimal_flip_set.py"),
    f"{EXPERIMENTS}/erasure.py": ("tests/experiments/test_erasure.py",),
    f"{EXPERIMENTS}/minimal_flip_set.py": ("tests/experiments/test_minimal_flip_set.py",),
    f"{EXPERIMENTS}/adversary_exact.py": ("tests/experiments/test_adversary_exact.py", "tests/test_answer_mask.py"),
    f"{EXPERIMENTS}/_climb.py": ("tests/experiments/test_adversary_exact.py",),
    f"{EXPERIMENTS}/identifiability.py": ("tests/experiments/test_identifiability.py",),
    f"{EXPERIMENTS}/_alternatives.py": ("tests/experiments/test_polytope.py",),
    f"{EXPERIMENTS}/_polytope.py": ("tests/experiments/test_polytope.py",),
    f"{EXPERIMENTS}/_programmes.py": ("tests/experiments/test_polytope.py",),
    f"{EXPERIMENTS}/_walks.py": ("tests/experiments/test_polytope.py",),
    f"{EXPERIMENTS}/_heads.py": ("tests/experiments/test_identifiability_of_maps.py",),
    f"{EXPERIMENTS}/random_support.py": ("tests/experiments/test_random_support.py",),
    f"{EXPERIMENTS}/rationale_erasure.py": ("tests/experiments/test_rationale_erasure.py",),
    f"{EXPERIMENTS}/soft_erasure.py": ("tests/experiments/test_soft_erasure.py",),
    f"{IMPORTANCE}/gradient.py": ("tests/importance/test_gradient.py",),
    f"{IMPORTANCE}/gradient_norm.py": ("tests/importance/test_gradient_norm.py",),
    f"{IMPORTANCE}/leave_one_out.py": ("tests/importance/test_leave_one_out.py",),
    f"{IMPORTANCE}/occlusion.py": ("tests/importance/test_occlusion.py",),
    f"{IMPORTANCE}/integrated_gradients.py": ("tests/importance/test_integrated_gradients.py",),
    f"{IMPORTANCE}/exact_contribution.py": ("tests/importance/test_attention_scores.py",),
    f"{IMPORTANCE}/attention_norm.py": ("tests/importance/test_attention_scores.py",),
    f"{IMPORTANCE}/value_zeroing.py": ("tests/importance/test_context_mixing.py",),
    f"{IMPORTANCE}/alti.py": ("tests/importance/test_context_mixing.py",),
    f"{SUBJECTS}/stacks.py": ("tests/test_view.py",),
    "src/attnfaith/api/viewing.py": ("tests/test_view.py",),
    f"{REPORTING}/views.py": ("tests/test_view.py",),
    f"{REPORTING}/view_figures.py": ("tests/test_view.py",),
    f"{IMPORTANCE}/_mixing.py": ("tests/importance/test_context_mixing.py",),
    f"{SUBJECTS}/layers.py": ("tests/importance/test_context_mixing.py",),
    f"{SUBJECTS}/layer_parts.py": ("tests/importance/test_context_mixing.py",),
    f"{IMPORTANCE}/_explained.py": ("tests/importance/test_explained.py",),
    f"{IMPORTANCE}/_removal.py": ("tests/importance/test_leave_one_out.py",),
    f"{IMPORTANCE}/_fast/lrp_rules.py": ("tests/importance/test_lrp.py",),
    f"{MODELS}/projections.py": ("tests/models/test_projections.py",),
    f"{MODELS}/rationale_samplers.py": ("tests/models/test_rationale_samplers.py",),
    f"{MODELS}/sequence_budget.py": ("tests/models/test_rationale_samplers.py",),
    f"{OBJECTIVES}/rationale_lagrangian.py": ("tests/test_rationale_objectives.py",),
    f"{OBJECTIVES}/rationale_reinforce.py": ("tests/test_rationale_objectives.py",),
    f"{EXPERIMENTS}/selection.py": ("tests/experiments/test_selection.py",),
    f"{IMPORTANCE}/_concrete.py": ("tests/importance/test_diffmask.py",),
    f"{IMPORTANCE}/_gate_training.py": ("tests/importance/test_diffmask.py",),
    f"{IMPORTANCE}/_gate_state.py": ("tests/importance/test_diffmask.py",),
    f"{EXPERIMENTS}/token_logits.py": ("tests/experiments/test_token_logits.py",),
    f"{REPORTING}/templates/what_if.js": ("tests/reporting/test_what_if.py",),
    f"{REPORTING}/templates/texts.js": ("tests/reporting/test_instrument_page.py",),
    f"{REPORTING}/page/instrument.py": ("tests/reporting/test_instrument.py",),
    "src/attnfaith/escaping.py": ("tests/test_escaping.py",),
    "src/attnfaith/redaction.py": ("tests/test_redaction.py",),
    "src/attnfaith/hub/checks.py": ("tests/test_redaction.py", "tests/test_untrusted_files.py"),
    "src/attnfaith/files.py": ("tests/test_untrusted_files.py",),
    "src/attnfaith/errors.py": ("tests/test_redaction.py",),
    "src/attnfaith/provenance.py": ("tests/test_provenance.py", "tests/test_redaction.py"),
    "src/attnfaith/record/io.py": ("tests/test_redaction.py",),
    "src/attnfaith/study/cell.py": ("tests/test_redaction.py",),
    "src/attnfaith/recipes/sections.py": ("tests/test_redaction.py",),
    f"{REPORTING}/page/recorded.py": ("tests/reporting/test_instrument.py",),
    f"{REPORTING}/leakage.py": ("tests/reporting/test_leakage.py",),
    f"{REPORTING}/sections/selection.py": ("tests/reporting/test_selection_sections.py",),
    f"{REPORTING}/sections/selection_budgets.py": ("tests/reporting/test_selection_sections.py",),
    f"{MODELS}/modeling_self_attention_classifier.py": ("tests/models/test_self_attention_classifier.py",),
    f"{MODELS}/alignments.py": ("tests/models/test_alignments.py", "tests/models/test_golden.py"),
    f"{MODELS}/modeling_attention_seq2seq.py": ("tests/models/test_attention_seq2seq.py",),
    "src/attnfaith/data/pairs/links.py": ("tests/data/test_pairs.py",),
    "src/attnfaith/data/pairs/toy_language.py": ("tests/data/test_pairs.py",),
    "src/attnfaith/data/pairs/tokenization.py": ("tests/data/test_pairs.py",),
    "src/attnfaith/objectives/linked_mass.py": ("tests/test_translating.py",),
    "src/attnfaith/translating.py": ("tests/test_translating.py",),
    "recipes/pruthi_2020/sequences_analysis.py": ("tests/recipes/pruthi_2020/test_sequences.py",),
    f"{MODELS}/encoders.py": ("tests/models/test_encoders.py", "tests/models/test_modeling.py"),
    "src/attnfaith/data/own_cut.py": ("tests/data/test_own_data.py",),
    "src/attnfaith/data/own_files.py": ("tests/data/test_own_files.py",),
    "src/attnfaith/data/own_labels.py": ("tests/data/test_own_data.py",),
    "src/attnfaith/objectives/adversarial.py": ("tests/test_objectives.py",),
    "src/attnfaith/objectives/classification.py": ("tests/test_objectives.py",),
    "src/attnfaith/stats.py": (
        "tests/reporting/test_report_statistics.py",
        "tests/test_stats_over_seeds.py",
        "tests/test_stats_panel.py",
        "tests/reporting/test_report_correlations.py",
    ),
    f"{REPORTING}/separation.py": ("tests/reporting/test_separation.py",),
    f"{REPORTING}/attention_tests.py": ("tests/reporting/test_attention_tests.py", "tests/reporting/test_uncovered.py"),
    f"{REPORTING}/pairings.py": ("tests/reporting/test_uncovered.py", "tests/reporting/test_interventions.py"),
    f"{REPORTING}/sections/uncovered.py": ("tests/reporting/test_uncovered.py",),
    f"{REPORTING}/blocks.py": ("tests/reporting/test_uncovered.py",),
    f"{REPORTING}/drawn.py": ("tests/reporting/test_paper_figures.py",),
    f"{REPORTING}/style.py": ("tests/reporting/test_paper_figures.py",),
    "src/attnfaith/space/answers.py": ("tests/space/test_answers.py",),
    "src/attnfaith/space/drawing.py": ("tests/space/test_answers.py",),
    f"{REPORTING}/sections/interventions.py": ("tests/reporting/test_interventions.py",),
    f"{REPORTING}/survey.py": ("tests/reporting/test_survey.py",),
    f"{REPORTING}/comparisons.py": ("tests/reporting/test_report_statistics.py",),
    f"{REPORTING}/explanation_tests.py": ("tests/reporting/test_report_saliency.py",),
    f"{REPORTING}/sections/saliency.py": (
        "tests/reporting/test_report_advice.py",
        "tests/reporting/test_report_saliency.py",
    ),
    f"{REPORTING}/sections/agreement.py": ("tests/reporting/test_report_tables.py", "tests/reporting/test_report_page.py"),
    f"{REPORTING}/sections/permutation.py": ("tests/reporting/test_report_permutation.py",),
    f"{REPORTING}/sections/adversary.py": ("tests/reporting/test_report_adversary.py",),
    f"{REPORTING}/sections/erasure.py": ("tests/reporting/test_report_erasure.py",),
    f"{REPORTING}/cards/findings.py": ("tests/reporting/test_report_cards.py",),
    f"{REPORTING}/page/answer.py": ("tests/reporting/test_answer.py",),
    f"{REPORTING}/page/answer_facts.py": ("tests/reporting/test_answer.py",),
    f"{REPORTING}/page/first_screen.py": ("tests/reporting/test_first_screen.py",),
    f"{REPORTING}/templates/first_screen.html.j2": ("tests/reporting/test_first_screen.py",),
    f"{REPORTING}/page/chart.py": ("tests/reporting/test_first_screen.py",),
    f"{REPORTING}/page/compare_page.py": ("tests/reporting/test_compare_page.py",),
    "recipes/any_classifier/ranking.py": ("tests/recipes/any_classifier/test_analysis.py",),
    f"{MEISTER}/claims.py": ("tests/recipes/meister_2021/test_summary.py",),
    f"{MEISTER}/evidence.py": ("tests/recipes/meister_2021/test_summary.py", "tests/recipes/meister_2021"),
    f"{MEISTER}/trends.py": ("tests/recipes/meister_2021",),
    "recipes/wiegreffe_pinter_2019/stability.py": ("tests/recipes/wiegreffe_pinter_2019",),
    "src/attnfaith/record/words.py": ("tests/test_record_words.py",),
    "src/attnfaith/data/subwords.py": ("tests/data/test_subwords.py",),
    "src/attnfaith/data/scripts.py": ("tests/data/test_scripts.py",),
    "recipes/planted_evidence/analysis.py": ("tests/recipes/planted_evidence",),
    f"{SUBJECTS}/sentence_batch.py": (
        "tests/subjects/test_cross_attention.py",
        "tests/sequences/test_alignment_measures.py",
    ),
    f"{SUBJECTS}/sequences.py": ("tests/subjects/test_cross_attention.py",),
    f"{SUBJECTS}/cross_attention.py": (
        "tests/subjects/test_cross_attention.py",
        "tests/sequences/test_alignment_measures.py",
    ),
    f"{SUBJECTS}/cross_checks.py": ("tests/subjects/test_cross_attention.py",),
    f"{SUBJECTS}/cross_parts.py": ("tests/sequences/test_alignment_measures.py",),
    f"{SUBJECTS}/recurrent_attention.py": (
        "tests/subjects/test_cross_attention.py",
        "tests/sequences/test_alignment_measures.py",
    ),
    **{
        f"{SEQUENCES}/{name}.py": ("tests/sequences/test_alignment_measures.py",)
        for name in (
            "attention",
            "norm",
            "alti",
            "value_zeroing",
            "_gradients",
            "gradient",
            "integrated_gradients",
            "occlusion",
        )
    },
    **{
        f"{SEQUENCES}/{name}.py": ("tests/sequences/test_cross_interventions.py",)
        for name in ("_outcomes", "cross_permutation", "cross_uniform", "knock_out", "cross_identifiability")
    },
    "src/attnfaith/data/pairs/reading.py": ("tests/sequences/test_sequence_measurement.py",),
    "supply/audit.py": ("tests/test_supply.py",),
}
"""The tests of each file that mutants change."""

CHANGES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "supply/audit.py": (
        (
            "an audit that could not look is clean",
            "KNOWN if known else NOT_AUDITED if unseen else CLEAN",
            "KNOWN if known else CLEAN",
        ),
        (
            "what is known is hidden by what is not",
            "KNOWN if known else NOT_AUDITED if unseen else CLEAN",
            "NOT_AUDITED if unseen else KNOWN if known else CLEAN",
        ),
        (
            "a package that a service does not know was looked up",
            "            continue\n        answer.looked_up",
            '            package = {**package, "vulns": []}\n        answer.looked_up',
        ),
        ("a package of two spellings is two", '"[-_.]+", "-", package).lower()', '"[.]+", "-", package)'),
        ("packages of other systems are left out of the question by their marker", 'MARKER.sub("", NESTED', "(NESTED"),
    ),
    f"{MODELS}/rationale_samplers.py": (
        ("the mean wherever zero is not likeliest of all", "(one > zero) & (one > between)", "(one > zero) & (one > 1)"),
        (
            "fused lasso counts one direction",
            "((left * (1 - right) + (1 - left) * right) * pairs)",
            "((left * (1 - right)) * pairs)",
        ),
        ("a budget rounded up", "(count.double() * share).round()", "(count.double() * share).ceil()"),
        ("no token at all", ".round().long().clamp(min=1), count)", ".round().long(), count)"),
        ("ties by rounding", "TIE = 1e-5", "TIE = 0.0"),
        (
            "windows tied by rounding",
            "(windows >= windows.amax(-1, keepdim=True) - tie)",
            "(windows >= windows.amax(-1, keepdim=True))",
        ),
        (
            "a budget that is never tight",
            "tight = free.sum(-1, keepdim=True) > count",
            "tight = free.sum(-1, keepdim=True) > count + 1",
        ),
    ),
    f"{MODELS}/sequence_budget.py": (
        ("a transition is worth nothing", "after = taken + transition", "after = taken"),
        (
            "the budget is one token less",
            "allowed = torch.arange(most + 1, device=scores.device) <= count",
            "allowed = torch.arange(most + 1, device=scores.device) < count",
        ),
        ("the Jacobian of the identity", "[span @ (span.t() @ slope) for span, slope", "[slope for span, slope"),
    ),
    f"{OBJECTIVES}/rationale_lagrangian.py": (
        (
            "the multiplier falls where too much is selected",
            "math.exp(self.rate * average)",
            "math.exp(-self.rate * average)",
        ),
        ("no moving average", "(1 - self.decay) * (measured - self.target)", "(measured - self.target)"),
        (
            "two-sided never negative",
            "multiplier + self.rate * average if self.two_sided",
            "max(0.0, multiplier + self.rate * average) if self.two_sided",
        ),
        ("the gradient of the average", "(average - differences.mean()).detach()", "(average - differences.mean())"),
    ),
    f"{OBJECTIVES}/rationale_reinforce.py": (
        ("a baseline that is added", "(costs.detach() - baseline) * log_probs", "(costs.detach() + baseline) * log_probs"),
        ("the score flows into the costs", "(costs.detach() - baseline) * log_probs", "(costs - baseline) * log_probs"),
        (
            "coherence without sparsity's unit",
            "return prices.sparsity * ((gates * mask).sum(-1) + prices.coherence * changes.sum(-1))",
            "return prices.sparsity * (gates * mask).sum(-1) + prices.coherence * changes.sum(-1)",
        ),
        (
            "changes into the padding",
            "(mask[:, 1:] & mask[:, :-1])\n    return prices",
            "(mask[:, 1:] | mask[:, :-1])\n    return prices",
        ),
    ),
    f"{EXPERIMENTS}/selection.py": (
        ("kept and removed change places", "np.concatenate([flat, ~flat, *", "np.concatenate([~flat, flat, *"),
        ("its own selection and the rest change places", "[own[None], ~own[None]]", "[~own[None], own[None]]"),
        ("the selector's order for its own selection", "of_text[place, 0] = mine", "of_text[place, 1] = mine"),
        ("sizes are cut off", "max(1, round(share * length))", "max(1, int(share * length))"),
    ),
    f"{IMPORTANCE}/_concrete.py": (
        ("open below zero", "softplus(EDGE - logits)", "softplus(-logits)"),
        ("a stretch to 1.2", "TEMPERATURE, LOW, HIGH = 0.2, -0.2, 1.0", "TEMPERATURE, LOW, HIGH = 0.2, -0.2, 1.2"),
    ),
    f"{IMPORTANCE}/_gate_training.py": (
        ("the multiplier goes down", "self.multipliers[layer].grad.neg_()", "self.multipliers[layer].grad.abs_()"),
        ("the worst valid epoch", "seen[1] < made.best", "seen[1] > made.best"),
        ("any epoch is valid", "seen[2] >= settings.valid_agreement", "seen[2] >= 0"),
        (
            "KL of the masked",
            "return (one.exp().masked_fill(barred, 0.0) * (one - other)).sum(1)",
            "return (other.exp().masked_fill(barred, 0.0) * (other - one)).sum(1)",
        ),
        ("no warm-up", "share = min(1.0, (masks.steps + 1) / max(1, self.warmup_steps))", "share = 1.0"),
    ),
    f"{IMPORTANCE}/_gate_state.py": (
        ("gone on with other draws", 'training.noise.set_state(tensors["noise"])', "pass"),
        ("gone on with the rate of the start", "    training.set_rate()\n", ""),
        ("another training's state is taken", 'or said["of"] != of', ""),
    ),
    f"{REPORTING}/leakage.py": (
        ("fitted on what it is tested on", "train = scaled[~test]", "train = scaled"),
        ("labels exchanged over all lengths", "STRATA = 5", "STRATA = 1"),
        (
            "a permutation counts where it tells less",
            "reached = gains[1:] >= gains[0] - 1e-12",
            "reached = gains[1:] <= gains[0] - 1e-12",
        ),
        ("p of nothing", "(1 + reached.sum()) / (1 + permutations)", "reached.sum() / permutations"),
    ),
    f"{REPORTING}/sections/selection.py": (
        (
            "empty selections are dropped from all",
            "some = values if texts == ALL else",
            "some = values if texts == SOME else",
        ),
        (
            "the rest's accuracy is the selection's",
            'without = stacked(cell, "complement_probs").argmax(1)',
            'without = stacked(cell, "selection_probs").argmax(1)',
        ),
        ("accuracy where marked tokens are selected", "np.where(recall == 0, made", "np.where(recall > 0, made"),
    ),
    f"{REPORTING}/sections/selection_budgets.py": (
        ("sufficiency from the rest", '"sufficiency": of_class - one[', '"sufficiency": of_class - other['),
    ),
    "src/attnfaith/record/words.py": (
        ("marks are summed", '"largest": np.maximum.reduceat', '"largest": np.add.reduceat'),
        (
            "a gradient's length without its root",
            "np.sqrt(np.add.reduceat(values**2, starts))",
            "np.add.reduceat(values**2, starts)",
        ),
        ("words go on from text to text", " | (text[1:] != text[:-1])", ""),
    ),
    "src/attnfaith/data/subwords.py": (
        ("evidence of a word that only touches a token", "            if first >= stop:", "            if first > stop:"),
        ("a blank does not part words", "        elif apart or alone:", "        elif alone:"),
        ("every unspaced letter goes on", " or begins_unspaced(piece)", ""),
        ("padding may be another token", '(("unk_token", "<unk>"), ("pad_token", "<pad>"))', '(("unk_token", "<unk>"),)'),
    ),
    "src/attnfaith/data/scripts.py": (
        ("half is most", "if written <= others", "if written < others"),
        ("the longest words lack blanks", "return written > longest", "return written >= longest"),
    ),
    f"{METRIC}/rank_agreement.py": (
        ("pairs tied in both are taken off twice", " + joint - 2 * discordant", " - 2 * discordant"),
        (
            "tau-a for tau-b",
            "difference / np.sqrt(total - x_ties[0]) / np.sqrt(total - y_ties[0])",
            "difference / total",
        ),
        ("texts of two tokens are undefined", "usable = lengths >= 2", "usable = lengths >= 3"),
        ("one-sided p", "return 2 * ndtr(", "return ndtr("),
        ("ties in both left out of the variance", " + 2 * x_pairs * y_pairs / m", ""),
        ("ceiling without its root", "np.sqrt(fewer / np.maximum(more, 1))", "fewer / np.maximum(more, 1)"),
        (
            "undefined texts count as not significant",
            "np.where(np.isnan(tau), np.nan, p_value <= alpha)",
            "(p_value <= alpha).astype(float)",
        ),
        ("sample for population deviation", "tau[defined].std())", "tau[defined].std(ddof=1))"),
        (
            "ratio of means for mean of ratios",
            '_mean(by_text["kendall_tau_over_ceiling"][defined])',
            '_mean(tau[defined]) / _mean(by_text["tie_ceiling"][defined])',
        ),
        (
            "tied scores pass a threshold one by one",
            "last[:-1] = (scores[1:] != scores[:-1]) | (owner[1:] != owner[:-1])",
            "last[:-1] = True",
        ),
        (
            "chance of average precision is the share marked",
            "others + (1 - others) * mean_reciprocal, np.nan)",
            "positives / n, np.nan)",
        ),
        (
            "90 % interval",
            "np.quantile(np.concatenate(means), (0.025, 0.975))",
            "np.quantile(np.concatenate(means), (0.05, 0.95))",
        ),
    ),
    f"{METRIC}/divergences.py": (
        ("TVD is the whole L1 distance", "np.abs(p - q) / 2, p, q)", "np.abs(p - q), p, q)"),
        ("JSD twice as large", "rel_entr(2 * q, p + q)) / 4", "rel_entr(2 * q, p + q)) / 2"),
        ("JSD in bits", "np.clip(_per_row(terms, p, q), 0, np.log(2))", "np.clip(_per_row(terms, p, q) / np.log(2), 0, 1)"),
        (
            "the higher class decides on equal probability",
            "places[filled[rows]] = hits[first] - starts[rows]",
            "places[filled[rows]] = hits[np.append(first[1:], len(hits)) - 1] - starts[rows]",
        ),
        ("rows that sum to 1.01 pass", "SUM_TOLERANCE = 1e-4", "SUM_TOLERANCE = 1e-2"),
        ("rows are not divided by their sum", "return flat / sums[owner]", "return flat"),
        ("undefined texts count as kept decisions", "flips[~np.isnan(flips)]", "np.nan_to_num(flips)"),
    ),
    f"{METRIC}/dispersion.py": (
        (
            "entropy over that of the support, not of the text",
            "/ np.log(lengths), 0, 1)",
            "/ np.log(np.bincount(owner, weights=flat > 0, minlength=len(lengths))), 0, 1)",
        ),
        ("small weights are no support", "np.nan, flat > 0)", "np.nan, flat > 1e-3)"),
    ),
    f"{METRIC}/erasure_curves.py": (
        ("the paper's sum over the number of shares", '(normalisation == "eraser_paper")', "0"),
        ("falls with the wrong sign", "return whole[:, None] - changed", "return changed - whole[:, None]"),
        (
            "rises count as negative falls",
            "falls = np.maximum(_falls(whole, changed, name), 0)",
            "falls = _falls(whole, changed, name)",
        ),
        ("nothing to lose is 0, not undefined", "out=np.full(falls.shape, np.nan)", "out=np.zeros(falls.shape)"),
        (
            "steps for trapezoids",
            "(widths * (heights[:, 1:] + heights[:, :-1])).sum(1) / 2",
            "(widths * heights[:, :-1]).sum(1)",
        ),
    ),
    f"{METRIC}/alignment_error_rate.py": (
        ("possible links are not possible ones", "sum(kind > 0 for kind in met)", "sum(kind == POSSIBLE for kind in met)"),
        ("possible links are expected", "sure = sum(kind == SURE for kind", "sure = sum(kind > 0 for kind"),
        ("the error rate is its complement", "scores[..., 0] = 1 - scores[..., 0]", "pass"),
        ("links from 1 are taken from 0", "int(parts[1]) - start, int(parts[3]) - start", "int(parts[1]), int(parts[3])"),
        ("a link behind the end is let through", "row[:, side].max() < length", "row[:, side].max() <= length"),
        ("a link given twice counts as its last mark", "max(kinds.get(pair, 0), SURE if", "max(0, SURE if"),
        ("sentences are not drawn anew", "generator.integers(0, len(counts)", "generator.integers(0, 1"),
    ),
    "src/attnfaith/metrics/extraction.py": (
        (
            "both directions go along one axis",
            "_heaviest(filled, -1) & known, _heaviest(filled, -2)",
            "_heaviest(filled, -1) & known, _heaviest(filled, -1)",
        ),
        ("growing where one word has a link", "if other[0] != pair[0] and other[1] != pair[1]}", "if other != pair}"),
        ("a share of the largest of all", "filled.max(axis=-1, keepdims=True", "filled.max(keepdims=True"),
        ("a row without weight is linked", "(filled > 0) & (filled >=", "(filled >="),
        (
            "halves by the order in the file",
            'order = np.argsort(np.asarray(names, dtype=object), kind="stable")',
            "order = np.arange(len(names))",
        ),
    ),
    f"{REPORTING}/readings.py": (
        ("chosen where it is judged", "return self.scores(self.chooses)[:, 0]", "return self.scores(~self.chooses)[:, 0]"),
        ("positions may be chosen", "else reading.place.measure != POSITIONS)", "else True)"),
        (
            "the size of a signed measure keeps its sign",
            "return [np.abs(values) for values in",
            "return [values for values in",
        ),
    ),
    f"{REPORTING}/sections/cross_interventions.py": (
        ("words that were not changed count", "np.where(np.isnan(changed), np.nan, row)", "np.where(False, np.nan, row)"),
        ("gains count as falls", "_mean(b - a)", "_mean(np.abs(b - a))"),
    ),
    f"{METRIC}/plausibility.py": (
        ("rounded down", "max(1, int(np.ceil(share * len(values) - 1e-9)))", "max(1, int(share * len(values)))"),
        (
            "matching chosen spans over marked ones",
            "recall = matches.any(0).mean()",
            "recall = matches.any(1).sum() / len(theirs)",
        ),
        ("rows without marks in the mean share", "[share for share in shares if share > 0]", "shares"),
        ("fully marked rows are perfect", "== lengths, np.nan, precision)", "== lengths, 1.0, precision)"),
        (
            "overlap over the smaller span",
            "(np.diff(mine) + np.diff(theirs).T - shared)",
            "np.minimum(np.diff(mine), np.diff(theirs).T)",
        ),
        (
            "the first of equal scores is chosen",
            "np.lexsort((np.random.default_rng(len(values)).permutation(len(values)), -values))",
            "np.argsort(-values, kind='stable')",
        ),
    ),
    f"{METRIC}/support_agreement.py": (
        ("every tied token counts whole", "tied * (left / np.maximum(group, 1))[owner]", "tied"),
        (
            "tokens without weight among the heaviest",
            "k = np.minimum(support, np.maximum(wanted, 1))",
            "k = np.maximum(wanted, 1)",
        ),
        ("k = T is not left out", "| (k == 0) | (k == lengths)", "| (k == 0)"),
    ),
    "src/attnfaith/metrics/classification.py": (
        ("ties lose in the ROC", "rankdata(probability)[labels == 1]", "rankdata(probability, method='min')[labels == 1]"),
        ("F1 halved", "2 * hits / (support + decided) if", "hits / (support + decided) if"),
    ),
    f"{EXPERIMENTS}/permutation.py": (
        (
            "nothing is permuted",
            'generator(seed, name, "permutation").permuted(places, axis=1)',
            'generator(seed, name, "permutation").permuted(places, axis=0)',
        ),
        ("draws of a text with one token", "(draws if length > 1 else 0, length)", "(draws, length)"),
        ("one seed for all texts", 'generator(seed, name, "permutation")', 'generator(seed, "", "permutation")'),
    ),
    f"{EXPERIMENTS}/_erasing.py": (
        ("one token fewer", "np.where(flips, step[:, 0] + 1.0, np.nan)", "np.where(flips, step[:, 0] + 0.0, np.nan)"),
        ("a tie never flips", "(sums < -tie) | (self.lower[rows, :, None] & (sums <= tie))", "sums < -tie"),
        ("gradient of the logit, not of the log-odds", "slope = own - (share[:, None] @ self.content)[:, 0]", "slope = own"),
        (
            "order by size of the product",
            "(self.attention, slope, self.attention * slope)",
            "(self.attention, slope, np.abs(self.attention * slope))",
        ),
        ("random orders differ not from text to text", 'generator(seed, name, "erasure")', 'generator(seed, "", "erasure")'),
        (
            "the mass before the flip",
            "np.take_along_axis(weights.cumsum(1), step, 1)[:, 0]",
            "np.take_along_axis(weights.cumsum(1) - weights, step, 1)[:, 0]",
        ),
    ),
    f"{EXPERIMENTS}/erasure.py": (
        (
            "one size fewer by re-projection",
            "sizes[rows] = np.where(changed, last + 1, sizes[rows])",
            "sizes[rows] = np.where(changed, last, sizes[rows])",
        ),
        (
            "the derivative of the log-odds is called that of the probability",
            "_cut(spread[:, None] * slope, lengths)",
            "_cut(slope, lengths)",
        ),
    ),
    f"{EXPERIMENTS}/identifiability.py": (
        (
            "the biases of logits are left out and the weights too",
            "states = states @ weight.double().t()",
            "states = states",
        ),
        ("words of sentences have one sum", 'if subject.level == "word" else', 'if subject.level == "words" else'),
        ("the change is that of the first class", ".nan_to_num(0.0).amax(1)", ".nan_to_num(0.0)[:, 0]"),
    ),
    f"{EXPERIMENTS}/_alternatives.py": (
        ("a distance is not halved", "np.abs(other - own).sum() / 2)", "np.abs(other - own).sum())"),
        ("what tokens can lose is no bound", "min((high - own).sum(), (own - low).sum())", "(high - own).sum() / 2"),
        ("a search counts as a proof", "self.bound - self.tvd <= 10 * EXACT", "self.tvd <= self.bound"),
        ("held tokens lose their weight", "held[places] = 0.0", "held[:] = 0.0"),
        ("the climb goes down", "np.where(self.of(best) > own, -1.0, 1.0)", "np.where(self.of(best) > own, 1.0, -1.0)"),
        ("the tokens with the smallest weights", 'np.argsort(-own, kind="stable")[:top]', "np.argsort(own)[:top]"),
    ),
    f"{EXPERIMENTS}/_polytope.py": (
        ("weights need not sum to 1", "left[:, counted].T])", "left[:, counted].T])[1:]"),
        ("values are not centred", "np.linalg.svd(values - values.mean(0)", "np.linalg.svd(values"),
        ("rounding makes an equation", "counted = sizes > rounding", "counted = sizes > 1e-9 * rounding"),
        ("the other end of a segment", "for way in (direction, -direction)", "for way in (direction, direction)"),
        ("a token that was never without weight has 0", "np.min(self.seen, axis=0) <= ZERO] = 0.0", "self.own < 0.1] = 0.0"),
    ),
    f"{EXPERIMENTS}/_programmes.py": (
        ("the proof forgets what may go", "np.abs(prices) @ self.slack", "0.0 * np.abs(prices) @ self.slack"),
        ("the proof takes reduced costs as they are", "- lost + rest.min())", "- lost)"),
        ("the smaller programme is around nothing", "values = self.attention + self.basis", "values = self.basis"),
    ),
    f"{EXPERIMENTS}/_walks.py": (
        ("a walk ends at its first wall", "if not going.any():", "if step or not going.any():"),
        ("masked tokens get weight", "of_own = of_own * inside[:, None]", "of_own = of_own"),
        ("places that are closed open again", "taken[each, place] += 1", "taken[each, place] += 2"),
        ("the smallest weights are changed", "np.argpartition(-own, width", "np.argpartition(own, width"),
        ("what rounding left stays", "for _ in range(2):", "for _ in range(0):"),
    ),
    f"{EXPERIMENTS}/_heads.py": (
        ("all rows matter", "((none if one is None else one) != 0)", "((none if one is None else one) == one)"),
        (
            "markers exchange weights as well",
            "inside = self.subject.attendable(text)[0]",
            'inside = text["attention_mask"].bool()[0]',
        ),
        ("heads count alike whatever their weight on tokens", "float(mass / total)", "1 / len(rows)"),
        ("nothing is replaced", "if number in self.given else weights", "if number < 0 else weights"),
    ),
    f"{EXPERIMENTS}/minimal_flip_set.py": (
        ("only the first rival is tried", "rival = removed.argmin(1)", "rival = np.zeros(len(removed), np.int64)"),
        ("without any weight it always flips", "empty = (last == never) & erasing.flips_empty", "empty = last == never"),
        ("one token more than needed", "rank <= last[:, None], (erasing", "rank <= last[:, None] + 1, (erasing"),
    ),
    f"{EXPERIMENTS}/adversary_exact.py": (
        (
            "a wrong upper end",
            "math.log(p + epsilon) - math.log(q - epsilon)",
            "math.log(p + epsilon) - math.log(q + epsilon)",
        ),
        ("edges at one end only", "for end in (low, high) for group", "for end in (low,) for group"),
        ("the hull is the upper one", "if (x1 - x0) * (height - y0) > (y1", "if (x1 - x0) * (height - y0) < (y1"),
        ("of many the first tied one wins too late", "= np.minimum(self.order[some", "= np.maximum(self.order[some"),
        (
            "too few weights may be the best",
            "low, high = (middle, high) if lost(middle) <= limit",
            "low, high = (low, middle) if True",
        ),
        (
            "tokens at the end do not count",
            'scores.searchsorted(low, "left"), scores.searchsorted(high, "right")',
            'scores.searchsorted(low, "right"), scores.searchsorted(high, "left")',
        ),
        (
            "the loss is taken off whole",
            "return Adversary(max(math.log(2) - least / 2, 0.0)",
            "return Adversary(max(math.log(2) - least, 0.0)",
        ),
        ("the weaker bound is certified", "bound = min(\n", "bound = max(\n"),
        ("barred classes count", "if text.answers.sum() == 1 or", "if len(text.probs) == 1 or"),
    ),
    f"{EXPERIMENTS}/_climb.py": (
        (
            "the range of two classes is too narrow",
            "rest[first] - raised[second], raised[first] - rest[second])",
            "np.log(probs[first]) - raised[second], raised[first] - np.log(probs[second]))",
        ),
        (
            "the others are left out of the mass",
            "attention = np.append(text.attention[tokens], mass)",
            "attention = np.append(text.attention[tokens], 0.0)",
        ),
        (
            "the heaviest are tried",
            'np.argsort(text.attention, kind="stable")[: MOST',
            'np.argsort(-text.attention, kind="stable")[: MOST',
        ),
        (
            "a start that is too far is gone from",
            "if self.distance(near @ self.decoder.states) > self.epsilon:",
            "if False:",
        ),
        ("no search from the best point on", "if larger <= divergence + TIE:", "if True:"),
        (
            "the distance is not halved",
            "(self.decoder.probs(points) - self.probs).sum(-1) / 2",
            "(self.decoder.probs(points) - self.probs).sum(-1)",
        ),
    ),
    f"{EXPERIMENTS}/random_support.py": (
        ("weights stay where they are", ".permuted(weights, axis=1)", ".permuted(weights, axis=0)"),
        (
            "the attention is no factor of the gradient",
            "return erasing.attention * steepness[:, None]",
            "return np.ones_like(erasing.attention) * steepness[:, None]",
        ),
    ),
    f"{EXPERIMENTS}/rationale_erasure.py": (
        ("rounded down", "max(1, math.ceil(share * length - 1e-9))", "max(1, math.floor(share * length + 1e-9))"),
        ("the least scores first", "-np.asarray(row, np.float64)", "np.asarray(row, np.float64)"),
        ("equal scores by place", "tie_breaker = random.permutation(length)", "tie_breaker = np.arange(length)"),
        ("kept and removed change places", "np.concatenate([flat, ~flat, np.zeros", "np.concatenate([~flat, flat, np.zeros"),
    ),
    f"{EXPERIMENTS}/soft_erasure.py": (
        ("kept and removed change places", "read(kept), read(~kept)", "read(~kept), read(kept)"),
        ("scores over their sum", "np.divide(values - low, high - low,", "np.divide(values, np.abs(values).sum(),"),
    ),
    f"{IMPORTANCE}/gradient.py": (
        ("signed", "spread.unsqueeze(-1) * value.abs()", "spread.unsqueeze(-1) * value"),
        ("p for p(1 - p)", "odds.sigmoid() * (-odds).sigmoid()", "odds.sigmoid()"),
        ("the gradient flows through attention", "log_odds, hold=True)", "log_odds)"),
    ),
    f"{IMPORTANCE}/gradient_norm.py": (("attention is never held", "(False, True) if holds", "(False, False) if holds"),),
    f"{IMPORTANCE}/leave_one_out.py": (
        ("L1 for TVD", ".abs().sum(-1) / 2", ".abs().sum(-1)"),
        ("the largest change for TVD", ".abs().sum(-1) / 2", ".abs().amax(-1)"),
        ("rounding where there is no weight", "removed, probs).masked_fill(idle, 0.0)", "removed, probs)"),
    ),
    f"{IMPORTANCE}/occlusion.py": (
        (
            "the wrong sign",
            "return whole - f(without_token(subject, batch, ABSENCES[by]))",
            "return f(without_token(subject, batch, ABSENCES[by])) - whole",
        ),
        (
            "zero embeddings for unknown words",
            'if by == "zero" else subject.vocabulary()[subject.unknown_token_id]',
            'if by != "" else subject.vocabulary()[subject.unknown_token_id]',
        ),
    ),
    f"{IMPORTANCE}/integrated_gradients.py": (
        ("right ends for midpoints", "(node + 0.5) / count", "(node + 1) / count"),
        ("padding in the mean embedding", "(total - table[padding]) / (len(table) - 1)", "total / len(table)"),
        (
            "points taken twice",
            "nodes = [node for node in range(count) if node % REFINED != REFINED // 2]",
            "nodes = range(count)",
        ),
        (
            "the residual is not asked for",
            "inexact = residual.abs() > tolerance",
            "inexact = residual.abs() > 100 * tolerance",
        ),
    ),
    f"{IMPORTANCE}/exact_contribution.py": (
        (
            "a contrast's second class is left out",
            "weight[chosen.of] - (0 if chosen.against is None else weight[chosen.against])",
            "weight[chosen.of]",
        ),
    ),
    f"{IMPORTANCE}/value_zeroing.py": (
        ("copies of one place", "== self.places.unsqueeze(1)", "== self.places[:1].unsqueeze(1)"),
        ("rows for columns", "shares(torch.cat(one).T)", "shares(torch.cat(one))"),
    ),
    f"{IMPORTANCE}/alti.py": (("no bound at 0", ".clamp(min=0)", ""),),
    f"{SUBJECTS}/stacks.py": (
        (
            "all positions are read alike",
            "subject.attention(text)[0, : self.length].double()",
            "torch.ones(self.length, dtype=torch.float64)",
        ),
    ),
    "src/attnfaith/api/viewing.py": (
        ("rollout without the residual", "(_attention(stack) + np.eye(len(stack.reads))) / 2", "_attention(stack)"),
    ),
    f"{REPORTING}/views.py": (("layers from above", "below = one @ below", "below = below @ one"),),
    f"{REPORTING}/view_figures.py": (("columns for rows", "shares[:, None] * one", "shares[None, :] * one"),),
    f"{IMPORTANCE}/_mixing.py": (("layers from below", "reversed(list(matrices))", "list(matrices)"),),
    f"{SUBJECTS}/layers.py": (
        ("layers fed as they come", "other if one is own else one for one in args", "one for one in args"),
    ),
    f"{SUBJECTS}/layer_parts.py": (
        ("no residual connection", "rows] += self.layer.state[0, rows]", "rows] += 0 * self.layer.state[0, rows]"),
        ("norms that do not centre", "return (vectors - vectors.mean(-1, keepdim=True))", "return (1 * vectors)"),
        ("a part that may lack", "off <= 1e-4 * least + ROUNDING", "off <= 1e6 * least + ROUNDING"),
        ("one head for all", "weights[head].unsqueeze(2) * values[head]", "weights[0].unsqueeze(2) * values[0]"),
        ("no norm before attention is added", "else self.inner(vectors, rows)", "else vectors"),
    ),
    f"{IMPORTANCE}/attention_norm.py": (("L1 norm", "vector_norm(vectors, dim=-1)", "vector_norm(vectors, ord=1, dim=-1)"),),
    f"{IMPORTANCE}/_explained.py": (
        ("log p for log-odds", "others = logits.scatter(-1, self._index(logits, self.of), -torch.inf)", "others = logits"),
        (
            "gold is the predicted class",
            'if target == "predicted":\n        return Explained',
            'if target in ("predicted", "gold"):\n        return Explained',
        ),
    ),
    f"{IMPORTANCE}/_removal.py": (
        ("a removed state stays in the sum", "return left + right\n", "return left + right + values\n"),
        (
            "nothing left is the model's own context",
            "mean = mean.masked_fill(remaining == 0, 0.0)",
            "mean = torch.where(remaining == 0, (weights * (hidden @ weight.t()).double()).sum(1, keepdim=True), mean)",
        ),
    ),
    f"{IMPORTANCE}/_fast/lrp_rules.py": (
        (
            "the stabiliser without a sign",
            "return values.abs() / (values.abs() + epsilon)",
            "return values / (values + epsilon)",
        ),
        ("the mean of layer normalisation keeps relevance", "scaled - scaled.mean(-1, keepdim=True)", "scaled"),
        (
            "relevance of the bias is lost",
            "relevances[BIAS] = _dots(kept, bias)",
            "relevances[BIAS] = _dots(kept, bias) * 0",
        ),
        (
            "the derivative of tanh for its ratio",
            "torch.where(values == 0, 1.0, values.tanh() / values)",
            "1 - values.tanh().square()",
        ),
    ),
    f"{MODELS}/modeling_self_attention_classifier.py": (
        ("a precision asked for and not given", ".to(dtype or scores.dtype)", ".to(scores.dtype)"),
        ("every softmax of sequences", "scores.dim() != 4 or", "scores.dim() < 3 or"),
        ("softmax where layers run again", "self._projecting(function), *args", "function, *args"),
        ("the mask of another attention", "deepcopy(model.config)", "model.config"),
        (
            "a broken score that nobody sees",
            "project(last, ~masked, config)",
            "project(last, ~masked & ~last.isnan(), config)",
        ),
    ),
    f"{MODELS}/projections.py": (
        (
            "sparsegen the wrong way round",
            "scores / (1 - config.sparsegen_lambda)",
            "scores * (1 - config.sparsegen_lambda)",
        ),
        ("too few halvings", "(blocked, alpha, -1, 60, True)", "(blocked, alpha, -1, 10, True)"),
        (
            "a text without tokens has weight",
            ".masked_fill(broken, torch.nan).masked_fill(~mask, 0.0)",
            ".masked_fill(broken, torch.nan)",
        ),
        (
            "scores are held at a variance",
            "(centred.square().sum(-1, keepdim=True) / count).masked_fill(flat, 1.0).sqrt()",
            "(centred.square().sum(-1, keepdim=True) / count).masked_fill(flat, 1.0)",
        ),
    ),
    f"{MODELS}/alignments.py": (
        ("divided by H", "self.scale = 1 / math.sqrt(config.hidden_size)", "self.scale = 1 / config.hidden_size"),
        (
            "the query is left out",
            "keys = keys + self.query(query).unsqueeze(-2)",
            "keys = keys + 0 * self.query(query).unsqueeze(-2)",
        ),
    ),
    f"{MODELS}/modeling_attention_seq2seq.py": (
        (
            "the state after a step asks in Bahdanau's place",
            "row = self.attend(keys, state, hidden, mask)",
            "row = self.attend(keys, self.cell(torch.cat([word, hidden[:, 0]], -1), state), hidden, mask)",
        ),
        ("the context does not enter the output", "read + self.context(decoded.contexts)", "read + 0 * decoded.contexts"),
        (
            "beams keep the state of others",
            "past_key_values.index_select(0, beam_idx)",
            "past_key_values",
        ),
        (
            "the decoder reads the word that it is to say",
            "torch.nn.functional.pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)",
            "labels",
        ),
    ),
    "src/attnfaith/data/pairs/links.py": (
        ("what counts from 1 is read from 0", "(int(match[part]) - first for part", "(int(match[part]) for part"),
        ("possible links are sure", 'SURE if match[2] == "-" else POSSIBLE', "SURE"),
        ("gold is turned round", "gold[target, source] = strength", "gold[target % targets, -1 - source] = strength"),
    ),
    "src/attnfaith/data/pairs/toy_language.py": (
        ("links of a reversed clause are in order", "said, translated = clause[place]", "said, translated = clause[-place]"),
        (
            "of two words one is linked",
            "for i in range(len(said)) for j in range(len(translated))",
            "for i in range(len(said)) for j in range(1)",
        ),
    ),
    "src/attnfaith/data/pairs/tokenization.py": (
        (
            "the end is a word",
            "numbers = [OUTSIDE if number is None else number",
            "numbers = [0 if number is None else number",
        ),
    ),
    "src/attnfaith/objectives/linked_mass.py": (
        ("padding counts", "* counted).sum() / counted.sum()", ").sum() / counted.numel()"),
        (
            "the logarithm of what is hidden",
            "return -(1 - mass).clamp(min=floor).log()",
            "return -mass.clamp(min=floor).log()",
        ),
    ),
    "src/attnfaith/translating.py": (
        (
            "padding is right",
            "right = (outputs.logits.argmax(-1) == labels) & counted",
            "right = outputs.logits.argmax(-1) >= 0",
        ),
        (
            "ends are not counted",
            "sum(len(target) + 1 for _, target in divided)",
            "sum(len(target) for _, target in divided)",
        ),
    ),
    "recipes/pruthi_2020/sequences_analysis.py": (
        ("the row in which the word is the input", "rows[0, 0] * (links > 0)", "rows[0, 1] * (links > 0)"),
        ("sure links only", "rows[0, 0] * (links > 0)", "rows[0, 0] * (links > 1)"),
    ),
    f"{MODELS}/encoders.py": (
        (
            "padding is read by the convolutions",
            "inside = (embedded * mask.unsqueeze(-1)).transpose(1, 2)",
            "inside = embedded.transpose(1, 2)",
        ),
        ("the mean counts padding", "/ mask.sum(1, keepdim=True).clamp(min=1)", "/ mask.shape[1]"),
        (
            "self-attention to padding",
            "scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min).softmax(-1)",
            "scores.softmax(-1)",
        ),
        (
            "the whole text's reverse, padding first",
            "reverse = (reverse_by_length(mask).t() * batch + rows).flatten()",
            "reverse = (torch.arange(length - 1, -1, -1).unsqueeze(1) * batch + rows).flatten()",
        ),
    ),
    "src/attnfaith/data/own_cut.py": (
        ("case tells texts apart", ".casefold() for text", " for text"),
        ("a training text may be in test", "enumerate(home) if other is None]", "enumerate(home)]"),
        ("the seed of the cut is ignored", "np.random.default_rng(seed), np", "np.random.default_rng(0), np"),
        ("rows are cut, not texts", "    return place[group]", "    return place[np.arange(len(group)) % len(place)]"),
        (
            "a small class fills one split",
            "size = min(max(1, round(share * len(groups))), spare)",
            "size = round(share * len(groups))",
        ),
    ),
    "src/attnfaith/data/own_files.py": (
        ("the last rows are always drawn", "int(share * count)) < limit", "int(share * limit)) < limit"),
        ("a short row is filled up", "if len(fields) != width:", "if len(fields) > width:"),
        ("an empty field of JSON is a text", "tuple(row.get(name) for name", 'tuple(row.get(name, "") for name'),
    ),
    "src/attnfaith/data/own_labels.py": (
        ("whole numbers are sorted as words", "key=lambda value: (int(value), value)", "key=lambda value: value"),
        ("a label of blanks is a class", "return value.strip() or None", "return value.strip()"),
        (
            "1.0 and 1 are two classes",
            "whole = {value: _WHOLE.fullmatch(value)[1] for value in values}",
            "whole = {value: value for value in values}",
        ),
    ),
    "src/attnfaith/objectives/adversarial.py": (
        (
            "JSD twice as large",
            "_relative_entropy(2 * base_attention, both)) / 4",
            "_relative_entropy(2 * base_attention, both)) / 2",
        ),
        ("the adversary stays near", "return distance - weight * DIVERGENCES", "return distance + weight * DIVERGENCES"),
        (
            "KL the wrong way round",
            "return _relative_entropy(attention, base_attention)",
            "return _relative_entropy(base_attention, attention)",
        ),
    ),
    "src/attnfaith/objectives/classification.py": (
        ("weights the wrong way round", "return counts[0] / counts", "return counts / counts[0]"),
        ("the weight of the wrong class", "class_weights.to(losses)[labels]", "class_weights.to(losses)[logits.argmax(-1)]"),
    ),
    f"{REPORTING}/separation.py": (
        ("a tie is won", "wins[0, one], every[0, one] = (below + up_to) / 2", "wins[0, one], every[0, one] = up_to"),
        ("a text's own pair is taken off twice", "self.wins.sum(0) + self.own_win", "self.wins.sum(0)"),
        ("a few texts are enough", "partnered.min() >= FEWEST_TEXTS", "partnered.min() >= 1"),
        ("texts of other strata count", "theirs[strata_second[theirs] == stratum]", "theirs"),
    ),
    f"{REPORTING}/attention_tests.py": (
        ("what never flips flips at once", "np.where(np.isnan(share), 1.0, share)", "np.where(np.isnan(share), 0.0, share)"),
        ("the last token in place of the first", "attention[np.argmax(scores)]", "attention[np.argmin(scores)]"),
        ("agreement is suspect", 'AttentionTest(f"τ with {label}", -1,', 'AttentionTest(f"τ with {label}", 1,'),
        ("erasure without its baseline", 'numbers["attention"] - numbers["random"]', 'numbers["attention"]'),
        ("the largest epsilon", "min(exact, key=lambda", "max(exact, key=lambda"),
    ),
    f"{REPORTING}/pairings.py": (
        ("a plain model is its own twin", "if plain not in (None, cell):", "if plain is not None:"),
        (
            "texts at the places of rows",
            "values[np.searchsorted(self.texts, cell.instance_ids)] = given",
            "values[: len(given)] = given",
        ),
    ),
    f"{REPORTING}/sections/uncovered.py": (
        (
            "the honest model is the suspect",
            "suspicion = test.suspect * deceiving[part], test.suspect * honest[part]",
            "suspicion = test.suspect * honest[part], test.suspect * deceiving[part]",
        ),
        ("no correction for many tests", "corrected[asked] = holm(table", "corrected[asked] = np.asarray(table"),
        ("one seed has a verdict", "if n_seeds < 2:", "if n_seeds < 1:"),
        ("a misled test uncovers", "TOLD if auc > 0.5 else MISLED", "TOLD"),
        ("controls are judged", '(table["kind"] == "test") & (table["seed"] == "all")', '(table["seed"] == "all")'),
    ),
    f"{REPORTING}/blocks.py": (
        ("a name keeps its brackets", "for bare in (True, False):", "for bare in (False, True):"),
        ("two models of one name", "if len(set(names)) == len(names):", "if names:"),
        ("a fingerprint comes first", "NAMING[:-2] if name in keys", "NAMING[::-1] if name in keys"),
    ),
    f"{REPORTING}/templates/first_screen.html.j2": (
        ("several models have no chart", "figure(screen) if screens|length <= most_charts", '""'),
        ("the advice repeats its head", "words.removeprefix(head)", "words"),
    ),
    f"{REPORTING}/drawn.py": (
        ("a word out of reach", "abs(nearest - place) < reach", "abs(nearest - place) < 9 * reach"),
        ("numbers are words", "all(_is_number(name) for name in names.values())", "False"),
        ("rows and columns exchanged", "for (y, x), value in", "for (x, y), value in"),
        ("what is not data", "np.where([along_x, along_y], ", "np.where([True, True], "),
        ("every line is the first", "counts.get(mark, -1) + 1", "0"),
    ),
    f"{REPORTING}/style.py": (
        ("all across the page", "COLUMN_WIDTH if figure", "PAGE_WIDTH if figure"),
        ("a drawing larger than its page", "pdf.output(scale, 0, 0, scale, 0, 0, Op.concat_matrix)", "pass"),
        ("one side of two", "svg, count=2)", "svg, count=1)"),
        ("ticks are rounded", "{100 * share:.4g}%", "{100 * share:.0f}%"),
        ("a title of one line", "head = textwrap.wrap(title, width=int(width * 8.2))", "head = [title]"),
    ),
    "src/attnfaith/space/answers.py": (
        ("twice the distance", "np.abs(probs - probs[0]).sum(1) / 2", "np.abs(probs - probs[0]).sum(1)"),
        ("the sum is left", "return weights / total", "return weights"),
        ("negative weights", "(weights < 0).any()", "(weights < -9).any()"),
        (
            "the least weight goes",
            "np.arange(count) == own.attention.argmax()",
            "np.arange(count) == own.attention.argmin()",
        ),
        ("the smallest change first", "key=lambda one: -one.tvd", "key=lambda one: one.tvd"),
        ("the word stays", "words[:place] + words[place + 1 :]", "words[:place] + words[place:]"),
        ("folders may be named", "if Path(name).exists():", "if False:"),
        ("what is not offered", "if not self.open:", "if False:"),
        ("the newest record goes", "popitem(last=False)", "popitem(last=True)"),
    ),
    "src/attnfaith/space/drawing.py": (
        ("texts are HTML", "</strong> {html(text)}", "</strong> {text}"),
        ("the frame reaches the page", 'sandbox="allow-scripts"', 'sandbox="allow-scripts allow-same-origin"'),
        ("the least probable classes", "-max(row.probs[c]", "max(row.probs[c]"),
    ),
    f"{REPORTING}/sections/interventions.py": (
        ("better is worse", "else -attention_tests.named(row", "else attention_tests.named(row"),
        ("the price is one of the tests", 'holm(table["p_value"].where(tests))', 'holm(table["p_value"])'),
        ("orthogonal states are plain", 'PLAIN_ENCODERS = {"orthogonal_lstm": "lstm"}', "PLAIN_ENCODERS: dict = {}"),
        ("the sum of differences without a text", "/ (counts - defined[known])", "/ counts"),
    ),
    f"{REPORTING}/survey.py": (
        ("texts hang on the order of rows", "shared = sorted(", "shared = list("),
        ("every part is of one model", "models[(place + part) % len(cells)]", "models[part]"),
        ("answers are written over", "not any(folder.iterdir())", "any(folder.iterdir())"),
    ),
    "src/attnfaith/stats.py": (
        (
            "seeds are forgotten",
            "np.std(by_seed, ddof=1) / np.sqrt(seeds)))",
            "0.0 * np.std(by_seed)))",
        ),
        ("texts are forgotten", "np.std(left_out) * np.sqrt(texts - 1)", "0.0 * np.std(left_out)"),
        ("quantiles of a normal distribution", "stdtrit(freedom, level / 2)", "stdtrit(1e9, level / 2)"),
        ("one side of two", "stdtrit(freedom, level / 2)", "stdtrit(freedom, level)"),
        ("as far is further", "@ sizes) >= bound))", "@ sizes) > bound))"),
        ("the observed pattern is not counted", "as_far, left = 1, draws", "as_far, left = 0, draws"),
        (
            "adjusted p-values fall",
            "np.minimum(np.maximum.accumulate(p_values[order] * steps), 1)",
            "np.minimum(p_values[order] * steps, 1)",
        ),
        ("Bonferroni for Holm", "steps = np.arange(len(order), 0, -1)", "steps = np.full(len(order), len(order))"),
        (
            "NaN counts as a test",
            "steps = np.arange(len(order), 0, -1)",
            "steps = np.arange(len(p_values), len(p_values) - len(order), -1)",
        ),
        (
            "90 % interval",
            "np.nanquantile(quotients[:, known], (0.025, 0.975), axis=0)",
            "np.nanquantile(quotients[:, known], (0.05, 0.95), axis=0)",
        ),
        (
            "texts pooled over seeds",
            "return ratio(np.where(known, by_seed, 0).sum(axis=1), known.sum(axis=1))",
            "return ratio(np.where(defined, self.values, 0).sum(axis=(1, 2)), defined.sum(axis=(1, 2)))",
        ),
        (
            "seeds are not resampled",
            "chosen = np.concatenate(list(_drawn(seeds, self.n_draws, 1))).T",
            "chosen = np.ones((seeds, self.n_draws))",
        ),
        ("a threshold moved", "FEWEST = 0.1", "FEWEST = 0.3"),
        ("undefined texts are 0 in a draw", "counts[gaps] = known_gaps @ part.T", "pass"),
        (
            "points for groups",
            "member_of = np.array([number_of.setdefault(labels[place], len(number_of)) for place in np.flatnonzero(used)])",
            "member_of = np.arange(n)\n    number_of = dict.fromkeys(range(n))",
        ),
        ("one text is an interval", "few = self.n < 2", "few = self.n < 1"),
        (
            "signs of one draw for all draws",
            "bits = np.unpackbits(generator.integers(0, 256, (count, width), dtype=np.uint8)",
            "bits = np.unpackbits(np.broadcast_to(generator.integers(0, 256, (1, width), dtype=np.uint8), (count, width))",
        ),
    ),
    f"{REPORTING}/comparisons.py": (
        (
            "Holm is left out",
            'table.loc[members.index, "p_holm"] = holm(members["p_value"])',
            'table.loc[members.index, "p_holm"] = members["p_value"]',
        ),
        (
            "tests over seeds in one family with those over texts",
            'for _, members in table.groupby("over"):',
            "for members in [table]:",
        ),
        ("intervals of three seeds", "FEWEST_SEEDS = 6", "FEWEST_SEEDS = 3"),
        (
            "the difference the wrong way round",
            "differences = defined[1] - defined[0]",
            "differences = defined[0] - defined[1]",
        ),
        (
            "the median of a seed's texts",
            "means[:, place] = pairs[:, defined].mean(axis=1)",
            "means[:, place] = np.nanmedian(pairs[:, defined], axis=1)",
        ),
    ),
    f"{REPORTING}/explanation_tests.py": (
        (
            "sufficiency is good when large",
            '"sufficiency": Criterion("sufficiency (AOPC)", -1)',
            '"sufficiency": Criterion("sufficiency (AOPC)", 1)',
        ),
        (
            "insertion from the wrong end",
            "area_under_curve(true_shares, other, empty, whole)",
            "area_under_curve(true_shares, other, whole, empty)",
        ),
        (
            "AOPC over every share",
            "bins = bins if bins.any() else np.ones(len(shares), bool)",
            "bins = np.ones(len(shares), bool)",
        ),
        ("unclipped soft comprehensiveness", "falls.clip(0, 1).mean(1)", "falls.mean(1)"),
        (
            "unclipped soft sufficiency",
            "normalised_sufficiency(whole, kept[:, place], empty).clip(0, 1).mean(1)",
            "normalised_sufficiency(whole, kept[:, place], empty).mean(1)",
        ),
        (
            "the nominal shares",
            "true_shares = np.minimum(counts / np.maximum(cell.lengths, 1)[:, None], 1)",
            "true_shares = np.broadcast_to(shares, counts.shape)",
        ),
    ),
    "recipes/any_classifier/ranking.py": (
        ("what is small is good counts as large", "if better * row", "if row"),
        ("the upper class wins a tie", "np.where(probs == 0.5, 0,", "np.where(probs == 0.5, 1,"),
        ("pairs over texts that one of them lacks", "np.isnan(whole.values).any(axis=0)", "np.isnan(whole.values)"),
        ("ranks by measures that are behind", "1 + int(ahead[:, place].sum())", "1 + int(ahead[place].sum())"),
    ),
    f"{REPORTING}/sections/saliency.py": (
        ("Holm is left out of “among the best”", "worse = (holm(p_values) <= ALPHA)", "worse = (p_values <= ALPHA)"),
        ("the best measure counts in its own family", "p_values[best] = np.nan  # not a test", "pass"),
        ("“any” for “most”", "share[name] > 0.5]", "share[name] > 0]"),
        ("ties broken by the worst", "(-wins[name], ranks[name])", "(-wins[name], -ranks[name])"),
        ("a threshold moved", "ALPHA = 0.05", "ALPHA = 0.1"),
        (
            "the best mean is the largest, also where small is good",
            "oriented = TESTS[test].better * means",
            "oriented = means",
        ),
        ("Holm is left out against attention", "holm(sign_flip_tests(differences)))", "sign_flip_tests(differences))"),
        ("plausibility counts as faithfulness", "not TESTS[test].evidence or test in truth]", "True]"),
        ("attention loses without significance", ' & (table["to_attention_p_holm"] <= ALPHA)', ""),
        ("a floor is recommended", "if name not in FLOORS and share[name]", "if share[name]"),
        ("chance is beaten without significance", ' & (table["to_random_p_holm"] <= ALPHA)', ""),
        (
            "worse is any difference",
            "& (np.nan_to_num(_means(differences)) < 0)",
            "| (np.nan_to_num(_means(differences)) < 0)",
        ),
    ),
    f"{REPORTING}/sections/agreement.py": (
        ("words by the unrounded mean", "if round(tau, 2) >= bound", "if tau >= bound"),
        ("more than one for more than either", "if tau > max(own):", "if tau > min(own):"),
    ),
    f"{REPORTING}/sections/permutation.py": (
        (
            "the mean over draws for the median",
            "np.median(total_variation_distance(own, others).reshape(-1, number), axis=1)",
            "np.mean(total_variation_distance(own, others).reshape(-1, number), axis=1)",
        ),
        ("a threshold moved", 'of="permutation_tvd", below=0.05)', 'of="permutation_tvd", below=0.06)'),
    ),
    f"{REPORTING}/sections/adversary.py": (
        ("restarts beyond epsilon count", "held = changes <= epsilon", "held = changes <= 2 * epsilon"),
        (
            "texts without an adversary are left out",
            "best = np.where(draw_counts > 0, 0.0, np.nan)",
            "best = np.where(draw_counts > 1, 0.0, np.nan)",
        ),
        ("a bound is called exact", 'sure = exact and row["share_exact"] == 1', "sure = exact"),
    ),
    f"{REPORTING}/sections/erasure.py": (
        (
            "texts that never flip are 0",
            "fraction = np.where(flips, size / np.maximum(cell.lengths, 1), 1.0)",
            "fraction = np.where(flips, size / np.maximum(cell.lengths, 1), 0.0)",
        ),
        (
            "no weight left counts as a flip",
            "flips = asked & ~np.isnan(size) & (allow_empty | ~empty)",
            "flips = asked & ~np.isnan(size)",
        ),
    ),
    f"{REPORTING}/page/answer.py": (
        ("a threshold moved: texts", "FEWEST_TEXTS = 30", "FEWEST_TEXTS = 29"),
        ("so many texts are too few", 'facts.n < FEWEST_TEXTS else ""', 'facts.n <= FEWEST_TEXTS else ""'),
        ("a threshold moved: weak", "WEAK = 0.3", "WEAK = 0.35"),
        ("a threshold moved: half of ln 2", "HALFWAY = np.log(2) / 2", "HALFWAY = 0.4"),
        ("half of the tests are most", "above > MOST * count and", "above >= MOST * count and"),
        ("beaten in half of the tests is enough", "len(beaten) > MOST * count", "len(beaten) >= MOST * count"),
        ("worse than chance in half of the tests is enough", "if below > MOST * count", "if below >= MOST * count"),
        ("the other end of the interval", "bool(self.low > bound and", "bool(self.high > bound and"),
        ("the other end of the interval, below", "bool(self.high < bound and", "bool(self.low < bound and"),
        (
            "the p-value is not asked",
            "return bool(self.low > bound and not self.p > ALPHA)",
            "return bool(self.low > bound)",
        ),
        ("beaten measures do not count", "and not beaten:", "and count:"),
        (
            "the model's accuracy is its mean",
            "facts.accuracy.above(facts.majority)",
            "facts.accuracy.value > facts.majority",
        ),
        ("unknown accuracy blocks", "np.isnan(facts.accuracy.value) or facts", "facts"),
        ("one of two correlations is enough", "not all(tau.below", "not any(tau.below"),
        (
            "the lower of the two is exceeded",
            "above(max(deletion.high, gradient.high))",
            "above(min(deletion.high, gradient.high))",
        ),
        ("a mean of shuffled texts decides", "facts.unmoved.above(MOST)", "facts.unmoved.value > MOST"),
        ("contradictions are against", "(against and speaking) or not", "not"),
        ("nothing found is a success", "or not (against or speaking)", "or False"),
    ),
    f"{REPORTING}/page/answer_facts.py": (
        (
            "a difference keeps its direction",
            "Interval(-against.value, -against.high, -against.low",
            "Interval(against.value, against.low, against.high",
        ),
        (
            "the ends of an interval change places",
            "-against.high, -against.low, against.p",
            "-against.low, -against.high, against.p",
        ),
        (
            "the worst other measure is taken",
            'sort_values("rank", kind="stable").iloc[0]',
            'sort_values("rank", kind="stable").iloc[-1]',
        ),
        ("random scores are a measure", '("attention", *saliency.FLOORS)', '("attention",)'),
        ("ties are not asked", "value / number.against for", "value for"),
        ("gradient and leave-one-out change places", "taus=(deletion, gradient)", "taus=(gradient, deletion)"),
        ("evidence and erasure change places", "contests[not saliency.TESTS", "contests[saliency.TESTS"),
        ("evidence that people marked is known for sure", 'cell.heading["dataset"] in saliency.GENERATED and', "True and"),
        ("chance is not taken off", "value - number.against for", "value for"),
        ("the rarest class is the commonest", "[1].max() / len(known)", "[1].min() / len(known)"),
    ),
    f"{REPORTING}/page/first_screen.py": (
        ("short texts are shown", "(cell.lengths >= SHORTEST_EXAMPLE) &", "(cell.lengths >= 1) &"),
        ("the extreme is shown", "distances <= distances.min() + 1e-12", "distances >= distances.max() - 1e-12"),
        ("the last of equals is shown", "return int(min(rows", "return int(max(rows"),
    ),
    f"{REPORTING}/page/chart.py": (
        ("the worst measure is on top", '"tau_mean", ascending=False', '"tau_mean", ascending=True'),
        ("the worst finder is on top", '"auprc_mean", ascending=False', '"auprc_mean", ascending=True'),
        ("known evidence is not drawn", "return evidence or next(", "return next("),
        ("equal scores are chance", 'rows["random_baseline"]', 'rows["uniform_baseline"]'),
        ("agreement is never explained", ", why=_why_agreement(cell))", ")"),
        ("attention is left out of many", 'or bar[0] in ("attention", *saliency.FLOORS)', "or bar[0] in saliency.FLOORS"),
        (
            "marks are off the scale",
            "(value - ticks[0]) / (ticks[-1] - ticks[0])",
            "(value - ticks[0]) / (ticks[-1] + ticks[0])",
        ),
        ("another row is chance", '"random", "mean"]', '"attention", "mean"]'),
    ),
    f"{REPORTING}/page/compare_page.py": (
        ("the nearest texts are called the furthest", "(-far[place], made", "(far[place], made"),
        ("distance without its half", "np.abs(one - own).sum() / 2", "np.abs(one - own).sum()"),
        ("what cannot be told is named", '("higher", "lower")]', '("higher", "lower", UNTOLD)]'),
        (
            "texts of another order",
            "cells, [place[name] for place in places], names",
            "cells, [0 for place in places], names",
        ),
    ),
    f"{REPORTING}/cards/findings.py": (
        ("a threshold moved: similar", "ALIKE, PARTLY = 0.5, 0.3", "ALIKE, PARTLY = 0.45, 0.3"),
        ("a threshold moved: somewhat similar", "ALIKE, PARTLY = 0.5, 0.3", "ALIKE, PARTLY = 0.5, 0.25"),
        ("a threshold moved: missed", "MOST_MISSED = 0.05", "MOST_MISSED = 0.1"),
        (
            "the mean decides, not its interval",
            "verdict = _verdict(min(number.low for number in defined.values()))\n    parts",
            "verdict = _verdict(min(number.value for number in defined.values()))\n    parts",
        ),
        (
            "the best measure decides",
            "verdict = _verdict(min(number.low for number in defined.values()))\n    parts",
            "verdict = _verdict(max(number.low for number in defined.values()))\n    parts",
        ),
        (
            "above chance by one measure",
            "above = all(number.low > number.against",
            "above = any(number.low > number.against",
        ),
        ("most texts by the mean", "against |= small.low > 0.5", "against |= small.value > 0.5"),
        ("missed by the kind end", "MAY_NOT if number.high > MOST_MISSED", "MAY_NOT if number.low > MOST_MISSED"),
        (
            "evidence at chance",
            "verdict = MAY_NOT if number.low <= number.against",
            "verdict = MAY_NOT if number.high <= number.against",
        ),
        ("an equal share is little", "weights[first] < 1 / len(weights)", "weights[first] <= 1 / len(weights)"),
        ("the largest epsilon", '(rows["epsilon"] == rows["epsilon"].min())', '(rows["epsilon"] == rows["epsilon"].max())'),
        ("mixing encoders may be read token by token", "CARE if _mixes(checkpoint) else MAY", "MAY"),
        (
            "naming without chance",
            "verdict = _verdict(number.low) if number.low > number.against else MAY_NOT",
            "verdict = _verdict(number.low)",
        ),
        ("a threshold moved: halfway", "HALFWAY = np.log(2) / 2", "HALFWAY = np.log(2) / 3"),
        ("a threshold moved: small", "SMALL = 0.05", "SMALL = 0.1"),
    ),
    f"{MEISTER}/claims.py": (
        (
            "a margin moved",
            "MARGIN, ACCURACY_MARGIN, HALF = 0.05, 0.02, 0.5",
            "MARGIN, ACCURACY_MARGIN, HALF = 0.1, 0.02, 0.5",
        ),
        (
            "an accuracy margin moved",
            "MARGIN, ACCURACY_MARGIN, HALF = 0.05, 0.02, 0.5",
            "MARGIN, ACCURACY_MARGIN, HALF = 0.05, 0.05, 0.5",
        ),
        (
            "undecided ties are no artefact",
            "if verdict == HOLDS and above(opposite(left)) != HOLDS:",
            "if verdict == HOLDS and above(opposite(left)) == FAILS:",
        ),
        ("an undecided null is exceeded", "if above(null) != HOLDS)", "if above(null) == FAILS)"),
        ("far is enough", "verdict = HOLDS if far == accurate == HOLDS", "verdict = HOLDS if far == HOLDS"),
        ("sparser by the mean", "if shrinks.high < 0:", "if shrinks.value < 0:"),
        ("far is less far", "FAR = float(np.log(2) / 2)", "FAR = float(np.log(2) / 3)"),
    ),
    f"{MEISTER}/evidence.py": (
        ("the mean for the lower end", "return HOLDS if evidence.low > bound", "return HOLDS if evidence.value > bound"),
        ("undecided is refuted", "else FAILS if evidence.high < bound else UNDECIDED", "else FAILS"),
        (
            "ends do not change places",
            "-evidence.value, -evidence.high, -evidence.low",
            "-evidence.value, -evidence.low, -evidence.high",
        ),
    ),
    f"{MEISTER}/trends.py": (
        (
            "a slope over lambda, not over decades",
            "return -np.log10(1 - np.asarray(list(lambdas), np.float64))",
            "return np.asarray(list(lambdas), np.float64)",
        ),
        ("levels with hardly any texts count", "unused = ~panel.filled", "unused = panel.n == 0"),
    ),
    "recipes/wiegreffe_pinter_2019/stability.py": (
        ("the mean over models for the median", 'self.by_model["jsd"], np.nanmedian)', 'self.by_model["jsd"], np.nanmean)'),
        ("ties lose in the ROC", "np.cumsum(negative, axis=1) - negative / 2", "np.cumsum(negative, axis=1) - negative"),
        (
            "adversaries of another seed",
            "(name == UNIFORM or is_adversary(cell)) and same_seed",
            "name == UNIFORM or is_adversary(cell)",
        ),
        (
            "unpaired bootstrap",
            'scores = {"accuracy": ratio(weights @ (decisions == labels), total)',
            'scores = {"accuracy": ratio((weights[::-1] if probs[0, 0] > 0.5 else weights) @ (decisions == labels), total)',
        ),
    ),
    "recipes/planted_evidence/analysis.py": (
        (
            "apart without an interval",
            '"yes" if beyond and max(auc, 1 - auc) >= APART',
            '"yes" if max(auc, 1 - auc) >= APART',
        ),
        ("one direction only", '"yes" if beyond and max(auc, 1 - auc) >= APART', '"yes" if beyond and auc >= APART'),
        ("a threshold moved", "APART = 0.75", "APART = 0.7"),
        ("the sign of most seeds", '"yes" if signs in ({1.0}, {-1.0})', '"yes" if signs'),
    ),
    f"{SUBJECTS}/sentence_batch.py": (
        ("the row before", "pad(predicting[:, :-1], (1, 0))", "pad(predicting[:, 1:], (0, 1))"),
        ("sums over target tokens", "predicting = owned / owned.sum(1, keepdim=True)", "predicting = owned"),
        (
            "all tokens are counted",
            "torch.where(owned, log_probs.double().unsqueeze(1), 0.0)",
            "log_probs.double().unsqueeze(1)",
        ),
    ),
    f"{SUBJECTS}/sequences.py": (
        ("what is gone stays", "== 1) & ~gone", "== 1)"),
        ("probabilities of scores", "chosen - logits.logsumexp(2).double()", "chosen"),
        ("edits of all copies", "self._read(copies, edit.take(some), None", "self._read(copies, edit, None"),
    ),
    f"{SUBJECTS}/cross_attention.py": (
        ("values of all heads but in no layer", "values.masked_fill(self.gone[:, None, :, None], 0.0)", "values"),
        (
            "layers as they come",
            "with Fed(self.model, self.sites.blocks, states) as fed:",
            "with Fed(self.model, (), states) as fed:",
        ),
    ),
    f"{SUBJECTS}/cross_checks.py": (
        ("rows of any sum", "sound = least >= 0 and float((sums - 1).abs().max()) <= 1e-4", "sound = least >= 0"),
        ("weights without use", "_check(not torch.equal(changed, logits), model", "_check(True, model"),
        ("returned attention of any kind", "_check(same, subject.model", "_check(True, subject.model"),
    ),
    f"{SUBJECTS}/cross_parts.py": (
        (
            "no state before",
            "self.layer.state[0, rows].unsqueeze(1)], 1)",
            "0 * self.layer.state[0, rows].unsqueeze(1)], 1)",
        ),
        ("the norm behind is left out", "self.middle = Norm.of(norm)", "pass"),
    ),
    f"{SUBJECTS}/recurrent_attention.py": (
        ("steps edited as the first", "slice(start, start + rows.shape[1])", "slice(0, rows.shape[1])"),
        ("the context enters no step", 'if self.config.recurrence == "bahdanau":', 'if self.config.recurrence == "luong ":'),
    ),
    f"{SEQUENCES}/attention.py": (("words are markers", 'batch["source_words"] < 0', 'batch["source_words"] >= 0'),),
    f"{SEQUENCES}/norm.py": (("L1 norm", "vector_norm(vectors, dim=2)", "vector_norm(vectors, ord=1, dim=2)"),),
    f"{SEQUENCES}/alti.py": (
        ("the source through no encoder", "entering = of_cross[:, :-1] @ source", "entering = of_cross[:, :-1]"),
        ("the target so far is forgotten", "0 if total is None else", "0 if total is not None else 0 *"),
        ("layers turned", "matrix if source is None else matrix @ source", "matrix if source is None else source @ matrix"),
    ),
    f"{SEQUENCES}/value_zeroing.py": (
        ("all but the word", "gone = of_sources(pair, 0).T > 0", "gone = of_sources(pair, 0).T == 0"),
    ),
    f"{SEQUENCES}/_gradients.py": (
        ("one word for all", "for words in sums.unbind(1)", "for words in [sums.sum(1)] * sums.shape[1]"),
    ),
    f"{SEQUENCES}/gradient.py": (("squares", ").sqrt().float()", ").float()"),),
    f"{SEQUENCES}/integrated_gradients.py": (
        ("markers change too", '(pair["source_words"] >= 0).unsqueeze(2)', '(pair["source_words"] >= -1).unsqueeze(2)'),
        ("another word", "device=words.device), words]", "device=words.device), 0 * words]"),
    ),
    f"{SEQUENCES}/occlusion.py": (
        ("the sign turned", "(own[: without.shape[1]] - without).T", "(without - own[: without.shape[1]]).T"),
    ),
    f"{SEQUENCES}/_outcomes.py": (("twice the distance", ".double() / 2", ".double()"),),
    f"{SEQUENCES}/cross_permutation.py": (("layers are not asked", "if layer not in self.layers:", "if layer < 0:"),),
    f"{SEQUENCES}/cross_uniform.py": (
        ("a share of all positions", "self.inside.sum().clamp(min=1)", "len(self.inside)"),
        ("every layer at once", "(self.layers < 0) | (self.layers == layer)", "self.layers < 9"),
    ),
    f"{SEQUENCES}/knock_out.py": (
        ("the rest keeps its size", "left / left.sum(3, keepdim=True).clamp(min=1e-30)", "left"),
        ("the worst word", "return predicting.argmax(1)", "return predicting.argmin(1)"),
    ),
    f"{SEQUENCES}/cross_identifiability.py": (
        ("limits of the whole row", "(mass[row] * limit for limit", "(1 * limit for limit"),
        (
            "own weights for limits",
            "least = np.array([polytope.minimise(word)[0] @ word for word in words.T])",
            "least = own",
        ),
    ),
    "src/attnfaith/data/pairs/reading.py": (
        ("no end is put", "more = [[end] if one else [] for one in open_ones]", "more = [[] for one in open_ones]"),
        ("words that are lost", "count = max(present, default=0) + 1 if was_cut else len(words)", "count = 0"),
    ),
    f"{EXPERIMENTS}/token_logits.py": (
        ("barred classes have numbers", "np.where(text.answers, values, np.nan)", "np.asarray(values)"),
        ("the bias in place of what tokens add", "(text.values, text.bias)", "(text.values + text.bias, text.bias)"),
    ),
    f"{REPORTING}/templates/what_if.js": (
        (
            "a prediction is kept from above alone",
            "[p > epsilon ? Math.log(p - epsilon) - Math.log(q + epsilon) : -Infinity,",
            "[-Infinity,",
        ),
        ("of tied tokens the last", "attention[Math.min(...tied)] = 1", "attention[Math.max(...tied)] = 1"),
        (
            "the weights of a pair the wrong way round",
            "attention[pair.left] = pair.weight",
            "attention[pair.left] = 1 - pair.weight",
        ),
        ("decided without the bias", " + text.bias[of] - text.bias[rival]);", ");"),
        ("an equal logit never wins", " || (rival < predicted && sum <= tie)", ""),
        ("a set larger by one", "places: order.slice(0, size)};", "places: order.slice(0, size + 1)};"),
        ("the rest is not shared out", "normalised(Array.from(attention, ", "Float64Array.from(Array.from(attention, "),
        (
            "dragged, the others become equal",
            "rest > 0 ? (value / rest) * (1 - weight)",
            "rest < 0 ? (value / rest) * (1 - weight)",
        ),
        ("no weight stays where it is", "2 ** 32) * (last + 1))", "2 ** 32) * last)"),
        ("twice the distance", "Math.abs(value - other[place]))) / 2;", "Math.abs(value - other[place])));"),
    ),
    f"{REPORTING}/templates/texts.js": (
        ("what is undefined comes first", "last(one) - last(other) ||", "last(other) - last(one) ||"),
        ("a large weight is no large bar", "0, 1) ** 2);", "0, 1));"),
        ("one word of several is enough", "of.every((holds)", "of.some((holds)"),
        ("a column is computed anew each time", "(this.columns[name] ??= ", "("),
        ("a text without a gold class has the probability 0 of it", "labels[row] < 0 ? NaN :", "labels[row] < 0 ? 0 :"),
        ("right for wrong", '=== (asked.error === "right")', '=== (asked.error === "wrong")'),
        (
            "evidence against the class looks like evidence for it",
            "value < 0 ? negative : hue",
            "value > 2 ? negative : hue",
        ),
    ),
    f"{REPORTING}/page/instrument.py": (
        (
            "the first texts in place of a sample",
            "np.random.default_rng(SAMPLE_SEED).permutation(len(cell))",
            "np.arange(len(cell))",
        ),
        ("bytes as they come", ".view(np.uint8).T)", ".view(np.uint8))"),
        ("a second class in place of none", "nan=-1)", "nan=1)"),
        ("a closed form for any number of classes", "_affine(cell) and cell.probs.shape[1] == 2,", "_affine(cell),"),
    ),
    f"{REPORTING}/page/recorded.py": (
        ("twice the distance", ".sum(1).mean() / 2 if", ".sum(1).mean() if"),
        (
            "a text without draws flips never",
            "!= decided).mean() if len(some) else np.nan",
            "!= decided).mean() if len(some) else 0.0",
        ),
    ),
    "src/attnfaith/escaping.py": (
        ("a text may end its element", r'.replace("<", "\\u003c")', ""),
        ("halves of letters stay", r"\x7f\ud800-\udfff", r"\x7f"),
        ("a link stays a link", r"[\\`*_\[\]|#~$]", r"[\\`*_|#~$]"),
        ("a bar ends a cell", r"[\\`*_\[\]|#~$]", r"[\\`*_\[\]#~$]"),
        ("tags stay tags", 'g<0>", re.sub("[&<>]", lambda', 'g<0>", re.sub("[&>]", lambda'),
        ("a link within a sentence", r"|(?<=\])[(\[:]", ""),
        ("an address becomes a link", "line = _ADDRESS.sub(_JOINER, line)", "line = line + ''"),
        ("a name after @ becomes a link", r"|(?<=@)(?=\S)", ""),
        ("a line becomes a list", 'r"^( ?)(?=[-+]( |$)', 'r"^( ?)(?=[+]( |$)'),
        ("code of a text ends early", '"`" * (1 + max(', '"`" * (0 + max('),
        ("a formula stays one", r"'*[=+\\-@", r"'*[+\\-@"),
        ("a tab before a formula", r"-@\t\r\n", r"-@\r\n"),
        ("numbers become texts", " and not _NUMBER.fullmatch(value) else value", " else value"),
        ("only new apostrophes are taken away", "return cell[1:] if", 'return cell.lstrip("\'") if'),
        ("names of columns are formulas", "safe.columns = [csv_cell(name) for name in frame.columns]", "pass"),
        ("commands of LaTeX", '"\\\\": r"\\textbackslash{}",', ""),
        ("text is turned round", 'in ("Cc", "Cs", "Co") or character in _DIRECTION', 'in ("Cc", "Cs", "Co")'),
        ("the cursor moves", 'in ("Cc", "Cs", "Co") or', 'in ("Cs", "Co") or'),
        ("a name leads upwards", '.strip("-.")[:most]', '.strip("-")[:most]'),
    ),
    "src/attnfaith/redaction.py": (
        (
            "values of the environment stay",
            "for value in sorted(known_secrets(), key=len, reverse=True):",
            "for value in ():",
        ),
        ("tokens stay", "_PRIVATE_KEY.sub(HIDDEN, TOKEN.sub(HIDDEN, text))", "_PRIVATE_KEY.sub(HIDDEN, text)"),
        ("keys stay", "_PRIVATE_KEY.sub(HIDDEN, TOKEN.sub(HIDDEN, text))", "TOKEN.sub(HIDDEN, text)"),
        ("passwords of URLs stay", '_USERINFO.sub(rf"\\1{HIDDEN}@", text))', "text)"),
        ("what options are given stays", 'if word.startswith("--") and OPTION.search(option):', "if False:"),
        ("encoded values stay", "return long | {quote(", "return long or {quote("),
        (
            "keys of a tree say nothing",
            "return HIDDEN if value and OPTION.search(key) else redacted(value)",
            "return redacted(value)",
        ),
        ("lists are not looked through", "        items = [(place, item) for item in value]", "        items = []"),
        ("flags are secrets", "SHORTEST = 8", "SHORTEST = 1"),
        ("special tokens are secrets", '("pad", "unk", "cls"', '("unk", "cls"'),
    ),
    "src/attnfaith/hub/checks.py": (
        ("columns are not read", 'yield "\\n".join(_strings(column)), True', 'yield "", True'),
        ("lists are not read", "column = column.flatten()", "column = column.slice(0, 0).flatten()"),
        ("notes of a table are not read", "told = [schema.metadata or {}, *(", "told = [*("),
        (
            "notes of weights are not read",
            "stream.read(int.from_bytes(stream.read(8)",
            "stream.read(0 * int.from_bytes(stream.read(8)",
        ),
        ("packed texts of pictures are not read", "decompress(packed, MOST_INFLATED)", "decompress(b'', MOST_INFLATED)"),
        ("what follows a picture is not read", "join([*said, content[place:]])", "join(said)"),
        ("links are followed", "    refuse_links_out(folder)\n", ""),
        (
            "values of the environment are pushed",
            "for value, source in secrets.items() if value in part), None)",
            "for value, source in ()), None)",
        ),
        ("passwords are pushed", "if kind := secret_in(part):", "if kind := None:"),
    ),
    "src/attnfaith/files.py": (
        ("links of folders lead out", "for name in (*folders, *names)):", "for name in names):"),
        ("links of files lead out", "for name in (*folders, *names)):", "for name in folders):"),
        ("a holder that is a link", "for one in (path, _holder_file(path)):", "for one in (path,):"),
        ("a lock that is a link", "for one in (path, _holder_file(path)):", "for one in (_holder_file(path),):"),
    ),
    "src/attnfaith/errors.py": (
        ("messages repeat secrets", "super().__init__(redacted(str(message)))", "super().__init__(str(message))"),
        ("a part of a secret is shown", "    text = redacted(text)\n", ""),
    ),
    "src/attnfaith/provenance.py": (
        ("a command keeps passwords", "        word = redacted(word)  #", "        word = str(word)  #"),
        ("a word after --token is kept", "shown.append(HIDDEN)", "shown.append(word)"),
    ),
    "src/attnfaith/record/io.py": (("settings keep secrets", "json.dumps(redacted_tree(parts))", "json.dumps(parts)"),),
    "src/attnfaith/study/cell.py": (
        ("a log keeps secrets", 'log.write(redacted(output.decode("utf-8", "replace")).encode())', "log.write(output)"),
        ("a secret is cut before it is known", "if len(rest) > LONGEST_LINE:", "if rest:"),
        ("the last line is lost", "    _write(log, rest)\n", ""),
    ),
    "src/attnfaith/recipes/sections.py": (
        ("a recipe may hold a secret", "if told := secret_of(asdict(recipe)):", "if told := None:"),
    ),
}

MUTANTS = [Mutant(file, bug, old, new, TESTS[file]) for file, changes in CHANGES.items() for bug, old, new in changes]

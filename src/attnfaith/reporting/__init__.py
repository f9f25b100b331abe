"""From a record to tables, figures and an HTML page. Needs no model: torch is never imported here."""

from attnfaith.reporting.comparisons import paired_comparison
from attnfaith.reporting.dispersion import dispersion_table
from attnfaith.reporting.figures import (
    attention_overview,
    dispersion_by_scores,
    gradient_vs_leave_one_out,
    save_figure,
    tau_histograms,
)
from attnfaith.reporting.interventions import instance_statistics
from attnfaith.reporting.interventions import tables as intervention_tables
from attnfaith.reporting.report import write_report
from attnfaith.reporting.tables import (
    agreement_table,
    performance_table,
    plausibility_table,
    save_table,
    seed_summary,
)
from attnfaith.stats import bootstrap_interval, correlations, holm, sign_flip_test


__all__ = [
    "agreement_table",
    "attention_overview",
    "bootstrap_interval",
    "correlations",
    "dispersion_by_scores",
    "dispersion_table",
    "gradient_vs_leave_one_out",
    "holm",
    "instance_statistics",
    "intervention_tables",
    "paired_comparison",
    "performance_table",
    "plausibility_table",
    "save_figure",
    "save_table",
    "seed_summary",
    "sign_flip_test",
    "tau_histograms",
    "write_report",
]

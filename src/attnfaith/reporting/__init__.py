"""From a record to tables, figures and an HTML page. Needs no model: torch is never imported here."""

from attnfaith.reporting.page.report import run_facts, write_report
from attnfaith.reporting.sections.agreement import (
    agreement_table,
    attention_overview,
    gradient_vs_leave_one_out,
    tau_histograms,
)
from attnfaith.reporting.sections.dispersion import dispersion_by_scores, dispersion_table
from attnfaith.reporting.sections.performance import performance_table
from attnfaith.reporting.sections.plausibility import plausibility_table
from attnfaith.reporting.style import save_figure
from attnfaith.reporting.tables import save_table, seed_summary
from attnfaith.stats import bootstrap_interval, holm, sign_flip_test


__all__ = [
    "agreement_table",
    "attention_overview",
    "bootstrap_interval",
    "dispersion_by_scores",
    "dispersion_table",
    "gradient_vs_leave_one_out",
    "holm",
    "performance_table",
    "plausibility_table",
    "run_facts",
    "save_figure",
    "save_table",
    "seed_summary",
    "sign_flip_test",
    "tau_histograms",
    "write_report",
]

"""Finished runs as repositories of the Hub: what a push sends (`contents`), and the push (`sending`).

A run becomes four repositories: the metric's Space, a data set of records (one configuration per run), a data set of result
tables (one configuration per table) and the model with its card. Each changes by one commit or not at all, so a push that
was interrupted is run again. huggingface_hub decides the address of the Hub and the user: HF_ENDPOINT, HF_TOKEN.
"""

from attnfaith.hub.contents import RECORDS, RESULTS, HubError, plan, plan_record, repo_id_of, shared_repos
from attnfaith.hub.sending import check, push


__all__ = ["RECORDS", "RESULTS", "HubError", "check", "plan", "plan_record", "push", "repo_id_of", "shared_repos"]

"""Finished runs as repositories of the Hub.

A run becomes four repositories: the metric's Space, a data set of records (one configuration per run), a data set of result
tables (one configuration per table) and the model with its card. Each is changed by one commit or not at all, and only where
it differs from what is there, so pushing again finishes what was interrupted. Where the Hub is and who asks comes from
huggingface_hub alone: HF_ENDPOINT, HF_TOKEN, `hf auth login`.

`repo`: a repository and a plan. `planning`: what would be sent. `checks`: what is refused before. `tables`: results of
several checkpoints. `one_record`: a record without a run. `sending`: the push. `patience`: what fails there.
"""

from attnfaith.hub.one_record import plan_record
from attnfaith.hub.planning import plan, plan_results, write_shards
from attnfaith.hub.repo import RECORDS, RESULTS, HubError, repo_id_of, shared_repos, size
from attnfaith.hub.sending import check, push


__all__ = [
    "RECORDS",
    "RESULTS",
    "HubError",
    "check",
    "plan",
    "plan_record",
    "plan_results",
    "push",
    "repo_id_of",
    "shared_repos",
    "size",
    "write_shards",
]

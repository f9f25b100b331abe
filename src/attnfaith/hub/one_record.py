"""A record that no run made, as a data set of the Hub: what a push of it would send."""

import re

import pyarrow as pa

from attnfaith import record as records
from attnfaith.errors import excerpt
from attnfaith.files import TemporaryFolder
from attnfaith.hub.checks import refuse_places
from attnfaith.hub.planning import SHARD_BYTES, records_files, without_places, write_shards
from attnfaith.hub.repo import HubError, Plan, Repo, repo_id_of
from attnfaith.reporting import cards
from attnfaith.reporting.cells import one_cell


CONFIG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")


def plan_record(
    table: pa.Table, repo_id: str, *, config: str = "default", private: bool = False, shard_bytes: int = SHARD_BYTES
) -> Plan:
    """What pushing a record of one model to the data set `repo_id` would send; the network is not asked.

    config: its configuration there; one of that name is replaced, others stay.

    Raises HubError for a name that the Hub does not allow, a record of several models, and one whose settings name a
    folder of this machine.
    """
    repo_id = repo_id_of(*str(repo_id).split("/", 1)) if "/" in str(repo_id) else repo_id_of("", str(repo_id))
    if not isinstance(config, str) or not CONFIG.fullmatch(config):
        raise HubError(f"config={excerpt(config)}: letters, digits, '-', '_' and '.', 80 at most")
    try:
        identity = one_cell(table).identity
    except ValueError as error:
        raise HubError(f"one record of one model is pushed at a time: {error}") from error
    kept = TemporaryFolder()
    table = records.with_settings(table, without_places(records.settings(table)))
    split = re.sub(r"\W+", "_", identity.split)
    shards = write_shards(table, kept.path / config, f"{config}/{split}", shard_bytes)
    facts = {**cards.cell_facts({}, table, model_repo=None), "split": split}
    repo = Repo("dataset", repo_id, {**shards, **records_files(repo_id, {config: facts})}, "records")
    refuse_places(repo, [])
    return Plan([repo], private, kept=kept)

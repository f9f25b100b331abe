"""Records, cards and what is pushed hold no command line and no environment."""

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith import cli, hub, provenance


CANARY = b"c4n4ry"
RUN = """
name: tiny
data: {arguments: {length: [4, 8], vocabulary_size: 40, sizes: {train: 64, validation: 24, test: 24}}}
model: {embedding_size: 8, hidden_size: 8}
training: {num_train_epochs: 1, learning_rate: 0.01, arguments: {disable_tqdm: true}}
measure: {producers: [gradient]}
report: {examples: 1}
"""


def unpacked(content: bytes) -> Iterator[bytes]:
    """A file's bytes; of a parquet file, whose pages are compressed, all cells and notes too."""
    yield content
    if content[:4] == b"PAR1":
        table = pq.read_table(pa.BufferReader(content))
        yield repr((table.schema.metadata, [field.metadata for field in table.schema], table.to_pydict())).encode()


@pytest.mark.slow
def test_no_token_is_in_any_byte_that_a_run_writes_or_pushes(tmp_path, monkeypatch):
    for name, value in {"HF_TOKEN": "hf_{}AbCdEfGhIjKl", "DB_PASSWORD": "{}", "https_proxy": "http://me:{}@host:9"}.items():
        monkeypatch.setenv(name, value.format(CANARY.decode()))
    monkeypatch.setattr(sys, "argv", ["attnfaith", "train", f"--token={CANARY.decode()}", "--password", CANARY.decode()])
    monkeypatch.setattr(provenance, "checkout", lambda: ("0" * 40, False))
    (tmp_path / "recipe.yaml").write_text(RUN)
    run = tmp_path / "run"
    assert cli.main(["train", "--config", str(tmp_path / "recipe.yaml"), "--output_dir", str(run)]) == 0

    plan = hub.plan(run, "a")
    pushed = {f"{repo.repo_id}/{path}": file for repo in plan.repos for path, file in repo.files.items()}
    written = {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "a/tiny/README.md" in pushed and str(run / "record.parquet") in written
    assert [name for name, file in (pushed | written).items() if any(CANARY in part for part in unpacked(file))] == []
    assert "command" not in json.loads((run / "run.json").read_text())["provenance"]

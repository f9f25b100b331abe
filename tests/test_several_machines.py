"""One measurement by two launched machines, which here are one and meet on loopback."""

import os
import socket
import subprocess

import pytest

from attnfaith import record, runs


def machine(rank, port):
    """The options of accelerate for one of two machines, as docs/how_to/studies.md has them."""
    return [
        "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "2", "--num_processes", "2",
        "--machine_rank", str(rank), "--main_process_ip", "127.0.0.1", "--main_process_port", str(port),
        "--mixed_precision", "no", "--dynamo_backend", "no",
    ]  # fmt: skip


@pytest.mark.slow
def test_two_machines_write_the_record_of_one(tiny_recipe, quick_report, repository, tmp_path, warm_attnfaith):
    sizes = {"train": 64, "validation": 24, "test": 300}  # three shards, two for the first machine
    recipe = tiny_recipe(
        objective__kind="untrained",
        data__arguments={"length": [2, 5], "vocabulary_size": 40, "sizes": sizes},
        measure__producers=["gradient"],
    )
    runs.run(recipe)
    run, output = tmp_path / "run", tmp_path / "two.parquet"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = [str(repository / "recipes" / "measure.py"), str(run), "--output", str(output)]
    started = [
        subprocess.Popen(
            [warm_attnfaith, *machine(rank, port), *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
        )
        for rank in (0, 1)
    ]
    printed = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], printed
    assert "record: " in printed[0] and "record: " not in printed[1]
    alone, two = (record.load(path) for path in (run / "record.parquet", output))
    (settings,) = record.settings(two)
    assert settings["shards"] == 3 and two.num_rows == 300
    assert two.cast(two.schema.remove_metadata()).equals(alone.cast(alone.schema.remove_metadata()))
    assert not output.with_name("two.parquet.shards").exists()

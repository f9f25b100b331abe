"""A record on the Hub and back: pushed from Python, read by `attnfaith.load` and by `datasets`, on a Hub of the tests."""

import textwrap
from pathlib import Path

import pytest

from attnfaith import record
from tests.forks import Forks
from tests.records import draw


pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def alice(tmp_path_factory, warm_python):
    """Runs Python as a user of the Hub, with two records beside it."""
    from tests.hub.server import HubServer

    folder = tmp_path_factory.mktemp("alice")
    for seed in (0, 1):
        table = draw(12, seed=seed)
        made = [{"identity": {}, "source": "/home/somebody/models/mine", "producers": ["gradient"], "label_names": []}]
        record.save(record.with_settings(table, made), folder / f"{seed}.parquet")
    with HubServer() as server:
        server.add_user("alice", "hf_alice_kept_secret")
        environment = server.environment(folder / "home", token="hf_alice_kept_secret")
        environment |= {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder)}
        with Forks(environment, folder, "import attnfaith, datasets\nattnfaith.Record\n", warm_python) as forks:

            def do(script):
                with forks.running((), folder, environment={}, clean=False, script=textwrap.dedent(script)) as command:
                    pass
                assert "kept_secret" not in command.stdout + command.stderr
                return command

            do.server = server
            yield do


def test_there_and_back(alice):
    done = alice(
        """
        import attnfaith, datasets
        mine = attnfaith.load("0.parquet")
        address = mine.push_to_hub("alice/mine", private=True)
        assert address.endswith("/datasets/alice/mine"), address
        again = attnfaith.load("alice/mine")
        assert again == mine and again.cells[0].identity == mine.cells[0].identity
        rows = datasets.load_dataset("alice/mine", split=mine.cells[0].identity.split)
        assert rows["tokens"][:] == mine.table.column("tokens").to_pylist()
        assert attnfaith.compare("alice/mine", attnfaith.load("1.parquet"), mix_versions=True).n_texts
        """
    )
    assert done.returncode == 0, done.stderr
    card = alice.server.read("dataset", "alice/mine", "README.md").decode()
    assert "| default | attention" in card and "huggingface.co/attention" not in card
    assert "gradient" in card and "/home/somebody" not in card
    (name,) = [path for path in alice.server.history("dataset", "alice/mine")[-1].files if path.endswith(".parquet")]
    assert b"/home/somebody" not in alice.server.read("dataset", "alice/mine", name)


def test_what_is_not_pushed(alice):
    done = alice(
        """
        import attnfaith
        try:
            attnfaith.load("0.parquet").push_to_hub("bob/mine")
        except attnfaith.AttnfaithError as error:
            assert "alice cannot write for bob" in str(error), error
        else:
            raise SystemExit("pushed for somebody else")
        """
    )
    assert done.returncode == 0, done.stderr


def test_a_model_of_the_hub_is_measured(alice):
    """Only what a model needs is fetched, and none of it is run."""
    done = alice(
        """
        import attnfaith
        from huggingface_hub import HfApi
        from attnfaith.data.tokenization import build_tokenizer
        tokenizer = build_tokenizer(["the old ship"], preprocessing="whitespace")
        sizes = {"vocab_size": len(tokenizer), "hidden_size": 4, "embedding_size": 4}
        config = attnfaith.AttentionClassifierConfig(**sizes)
        attnfaith.AttentionClassifierForSequenceClassification(config).save_pretrained("made")
        tokenizer.save_pretrained("made")
        HfApi().create_repo("alice/model")
        HfApi().upload_folder(repo_id="alice/model", folder_path="made")
        ours, theirs = (attnfaith.measure(name, ["the ship"], progress=False) for name in ("made", "alice/model"))
        assert ours == theirs
        try:
            attnfaith.measure("alice/nothing", ["the ship"])
        except attnfaith.AttnfaithError as error:
            assert "no model 'alice/nothing'" in str(error), error
        else:
            raise SystemExit("nothing was measured")
        """
    )
    assert done.returncode == 0, done.stderr
    fetched = [request.path for request in alice.server.requests if "/alice/model/resolve/" in request.path]
    assert fetched and not [path for path in fetched if path.endswith((".py", ".bin"))]

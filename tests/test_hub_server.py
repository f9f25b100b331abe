"""The loopback Hub server answers the real clients: huggingface_hub, transformers, datasets and evaluate."""

import subprocess

import pytest


ALICE = "hf_alice"
ALPHABET = bytes(range(256)) * 3


@pytest.fixture
def client(hub, tmp_path, warm_python):
    """Runs a command, or a script in Python, as a process that uses the Hub; returns what it has written."""

    def run(command, *, token=ALICE, code=0, **environment):
        command = [warm_python, "-c", command] if isinstance(command, str) else command
        environment = hub.environment(tmp_path / "home", token=token) | environment
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_huggingface_hub(hub, client, tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("hello")
    (folder / "empty").touch()
    (folder / "sub/b.json").write_text("{}")
    (folder / "w.safetensors").write_bytes(ALPHABET)
    client(r"""if True:
        import io
        from pathlib import Path
        from huggingface_hub import *
        from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

        api, repo, folder = HfApi(), "alice/model", Path("folder")
        assert api.whoami()["name"] == "alice" and api.whoami()["auth"]["accessToken"]["role"] == "write"
        assert api.create_repo(repo).repo_id == repo
        api.create_repo(repo, exist_ok=True)
        first = api.upload_folder(folder_path=folder, repo_id=repo, commit_message="folder")
        assert api.upload_folder(folder_path=folder, repo_id=repo, commit_message="again").oid == first.oid
        api.upload_file(path_or_fileobj=b"x\0", path_in_repo="c", repo_id=repo, commit_message="file")
        second = api.create_commit(repo, commit_message="commit", parent_commit=api.model_info(repo).sha, operations=[
            CommitOperationAdd("d.txt", b"d"), CommitOperationAdd("e.bin", io.BytesIO(b"e" * 1000)),
            CommitOperationDelete("a.txt"), CommitOperationDelete("sub/"),
            CommitOperationCopy("w.safetensors", "v.safetensors")])
        files = [".gitattributes", "c", "d.txt", "e.bin", "empty", "v.safetensors", "w.safetensors"]
        assert api.list_repo_files(repo) == files == [item.path for item in api.list_repo_tree(repo, expand=True)]
        assert api.list_repo_tree(repo, "sub", revision=first.oid).__next__().path == "sub/b.json"
        sibling = api.model_info(repo, files_metadata=True).siblings[-1]
        assert sibling.lfs.size == sibling.size == 768
        assert [item.path for item in api.get_paths_info(repo, ["c", "nothing"])] == ["c"]
        assert api.file_exists(repo, "c") and not api.file_exists(repo, "x")
        assert api.repo_exists(repo) and not api.repo_exists("alice/x") and not api.repo_exists(repo, repo_type="dataset")
        for error, call in (
            (RepositoryNotFoundError, lambda: api.model_info("alice/x")),
            (RevisionNotFoundError, lambda: api.model_info(repo, revision="x")),
            (EntryNotFoundError, lambda: hf_hub_download(repo, "x")),
            (EntryNotFoundError, lambda: list(api.list_repo_tree(repo, "x"))),
        ):
            try:
                call()
            except error:
                continue
            raise AssertionError(error)
        api.create_tag(repo, tag="v1", revision=first.oid)
        api.create_branch(repo, branch="side", revision="v1")
        request = api.create_commit(repo, [CommitOperationAdd("p", b"p")], commit_message="request", create_pr=True)
        assert request.pr_num == 1 and request.pr_revision == "refs/pr/1"
        api.upload_file(path_or_fileobj=b"q", path_in_repo="q", repo_id=repo, revision="refs/pr/1")
        refs = api.list_repo_refs(repo, include_pull_requests=True)
        assert [len(group) for group in (refs.branches, refs.tags, refs.pull_requests)] == [2, 1, 1]
        assert Path(hf_hub_download(repo, "a.txt", revision="v1")).read_text() == "hello"
        assert Path(hf_hub_download(repo, "q", revision="refs/pr/1")).read_text() == "q"
        assert Path(hf_hub_download(repo, "d.txt", local_dir="local")).read_text() == "d"
        there = Path(snapshot_download(repo))
        assert sorted(path.name for path in there.iterdir()) == files
        assert (there / "v.safetensors").read_bytes() == (folder / "w.safetensors").read_bytes()
        assert api.verify_repo_checksums(repo).mismatches == []
        titles = [item.title for item in api.list_repo_commits(repo)]
        assert titles == ["commit", "file", "folder", "initial commit"]
        files = HfFileSystem()
        assert files.read_text(f"{repo}/d.txt") == "d" and files.glob(f"{repo}/*.txt") == [f"{repo}/d.txt"]
        assert files.read_bytes(f"{repo}/v.safetensors", start=3, end=6) == b"\3\4\5"

        data = ModelCardData(license="mit", tags=["attention"], model_name="m", eval_results=[EvalResult(
            "text-classification", "imdb", "IMDB", "kendall_tau", 0.5)])
        ModelCard("---\n" + data.to_yaml() + "\n---\n# Card").push_to_hub(repo)
        assert ModelCard.load(repo).data.eval_results[0].metric_value == 0.5
        metadata_update(repo, {"tags": ["faithfulness"]}, overwrite=True)
        assert api.model_info(repo).tags == ["faithfulness"]
        try:
            api.upload_file(path_or_fileobj=b"---\na: [\n---\n", path_in_repo="README.md", repo_id=repo)
            raise AssertionError
        except ValueError as error:
            assert "Invalid metadata in README.md" in str(error)

        api.create_repo("hidden", repo_type="space", space_sdk="gradio", private=True)
        assert [item.id for item in api.list_spaces(author="alice")] == ["alice/hidden"]
        stranger = HfApi(token="hf_bob")
        assert not stranger.repo_exists("alice/hidden", repo_type="space") and not list(stranger.list_spaces())
        api.update_repo_settings("alice/hidden", repo_type="space", private=False)
        assert stranger.space_info("alice/hidden").sdk == "gradio"
        api.delete_repo("alice/hidden", repo_type="space")
        assert not api.repo_exists("alice/hidden", repo_type="space")
    """)
    assert [item.title for item in hub.history("model", "alice/model")][:4] == ["initial commit", "folder", "file", "commit"]
    assert hub.history("model", "alice/model", "refs/pr/1")[-2].title == "request"
    assert sum(item.method == "PUT" and "/lfs/" in item.path for item in hub.requests) == 3  # w.safetensors, c, e.bin


@pytest.mark.slow
def test_transformers(hub, client, tmp_path):
    """A configuration and a tokenizer pushed and loaded; code that travels with a private model."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text('{"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}')
    (tmp_path / "own/own.py").write_text(
        "from transformers import PreTrainedConfig\n\n\nclass Own(PreTrainedConfig):\n    model_type = 'own'\n    size = 3\n"
    )
    client("""if True:
        from huggingface_hub import create_repo, upload_folder
        from tokenizers import Tokenizer, models
        from transformers import AutoConfig, AutoTokenizer, BertConfig, PreTrainedTokenizerFast

        BertConfig(hidden_size=4, num_attention_heads=1).push_to_hub("alice/tiny")
        words = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "film": 2}, unk_token="<unk>"))
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").push_to_hub("alice/tiny")
        assert AutoConfig.from_pretrained("alice/tiny").hidden_size == 4
        assert AutoTokenizer.from_pretrained("alice/tiny")("film").input_ids == [2]

        create_repo("alice/own", private=True)
        upload_folder(repo_id="alice/own", folder_path="own")
        try:
            AutoConfig.from_pretrained("alice/own", trust_remote_code=True, token="hf_bob")
            raise AssertionError
        except OSError as error:
            assert "alice/own is not a local folder and is not a valid model identifier" in str(error), error
        assert AutoConfig.from_pretrained("alice/own", trust_remote_code=True).size == 3
    """)
    assert {"config.json", "tokenizer.json"} < set(hub.history("model", "alice/tiny")[-1].files)


METRIC = """
import datasets
import evaluate

from .counting import agree


class Share(evaluate.Metric):
    def _info(self):
        types = datasets.Features(predictions=datasets.Value("int64"), references=datasets.Value("int64"))
        return evaluate.MetricInfo(description="", citation="", features=types)

    def _compute(self, predictions, references):
        return {"share": agree(predictions, references) / len(predictions)}
"""


@pytest.mark.slow
def test_datasets_and_evaluate(hub, client, tmp_path):
    (tmp_path / "space").mkdir()
    (tmp_path / "space/share.py").write_text(METRIC)
    (tmp_path / "space/counting.py").write_text("def agree(a, b):\n    return sum(x == y for x, y in zip(a, b))\n")
    client("""if True:
        import evaluate
        from datasets import Dataset, DatasetDict, get_dataset_config_names, load_dataset
        from huggingface_hub import create_repo, upload_folder

        rows = Dataset.from_dict({"text": ["a", "b", "c", "d"] * 5, "label": [0, 1, 0, 1] * 5})
        both = DatasetDict(train=rows, test=rows.select(range(4)))
        both.push_to_hub("alice/data", num_shards={"train": 3, "test": 1})
        rows.select(range(2)).push_to_hub("alice/data", config_name="table", split="results")
        assert get_dataset_config_names("alice/data") == ["default", "table"]
        loaded = load_dataset("alice/data")
        assert loaded["train"].to_dict() == rows.to_dict() and len(loaded["test"]) == 4
        assert load_dataset("alice/data", "table", split="results")["text"][:] == ["a", "b"]
        assert next(iter(load_dataset("alice/data", split="train", streaming=True))) == rows[0]
        files = "hf://datasets/alice/data/data/train-*.parquet"
        assert len(load_dataset("parquet", data_files=files, split="train")) == 20

        create_repo("alice/share", repo_type="space", space_sdk="gradio")
        upload_folder(repo_id="alice/share", repo_type="space", folder_path="space")
        share = evaluate.load("alice/share")
        assert share.compute(predictions=[1, 2, 3, 4], references=[1, 2, 3, 5]) == {"share": 0.75}
    """)
    files = hub.history("dataset", "alice/data")[-1].files
    assert sum(path.startswith("data/train-") for path in files) == 3
    assert b"config_name: table" in hub.read("dataset", "alice/data", "README.md")

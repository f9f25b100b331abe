"""The Space's page and command where gradio is missing, and what stands around an answer."""

import pytest

from attnfaith import cli
from attnfaith.errors import AttnfaithError
from attnfaith.space import app
from tests.records import draw


@pytest.fixture
def without_gradio(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "gradio", None)


@pytest.fixture
def served(monkeypatch):
    """What the command would serve, and where."""
    calls = []
    monkeypatch.setattr(app, "require_gradio", lambda: None)
    monkeypatch.setattr(app, "serve", lambda desk, **where: calls.append((desk, where)))
    return calls


def test_without_gradio_one_line_says_what_to_install(without_gradio, capsys):
    assert cli.main(["space"]) == 2
    assert "error: the Space needs gradio, an optional extra: pip install 'attnfaith[space]'" in capsys.readouterr().err
    with pytest.raises(ImportError, match="the Space needs gradio"):
        app.build(None)


def test_the_command_offers_what_is_named(served, affine, capsys):
    assert cli.main(["space", str(affine), "owner/model", "--only", "--port", "7999"]) == 0
    ((desk, where),) = served
    assert list(desk.offered) == ["small", "owner/model"] and not desk.open
    assert where == {"host": "127.0.0.1", "port": 7999}, "this machine alone, unless it is said"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["space", "nowhere"], "nowhere is neither a run, nor the folder of a model"),
        (["space", "."], ". is neither a run"),
        (["space", "--only"], "no model is offered and none may be named"),
        (["space", "--port", "70000"], "--port 70000: give a number from 1 to 65535"),
        (["space", "--port", "x"], "--port"),
    ],
)
def test_the_command_refuses_what_it_cannot_serve(served, arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2 and said in capsys.readouterr().err and not served


def test_what_can_be_mended_is_said_and_a_fault_is_logged_alone(logged):
    assert app.words_of(AttnfaithError("a <b>\n c")) == "a &lt;b&gt; c"
    assert "secret" not in app.words_of(RuntimeError("a secret place"))
    assert any("question" in record.getMessage() for record in logged)


def test_records_to_be_fetched_are_the_newest_ones(monkeypatch):
    from attnfaith import Record

    monkeypatch.setattr(app, "MOST_FILES", 2)
    exports, record = app.Exports(), Record(draw(3))
    paths = [exports.save(record) for _ in range(3)]
    assert len(set(paths)) == 3 and len([one for one in exports.folder.path.iterdir() if one.is_dir()]) == 2
    assert Record.load(paths[-1]) == record and not app.Path(paths[0]).exists()

"""Commands that set things up: completion in a shell, the metric for `evaluate`."""

from argparse import ArgumentParser

from attnfaith.cli.command import COMMANDS, argument, command


SHELLS = ("bash", "zsh", "fish")
LISTS = {
    "config": "recipes",
    "producers": "measures",
    "add": "measures",
    "measures": "measures",
    "encoder": "encoders",
    "alignment": "alignments",
    "projection": "projections",
    "data.name": "datasets",
}
"""Options, or keys of a recipe by their last word, and the `attnfaith list` of their values."""
FOLDERS, FILES = ("run", "source", "output_dir", "base"), ("study", "output", "cards", "vectors")


@command(
    argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS)),
    examples=(
        "completion bash > ~/.local/share/bash-completion/completions/attnfaith",
        "completion zsh > ~/.zfunc/_attnfaith       # a folder of fpath",
        "completion fish > ~/.config/fish/completions/attnfaith.fish",
    ),
)
def completion(args):
    """A script that completes commands, options and names in bash, zsh or fish."""
    import shtab

    whole = ArgumentParser(prog="attnfaith", description="Does attention explain what a model does?")
    whole.add_argument("--version", action="store_true", help="which version this is")
    subparsers = whole.add_subparsers(dest="command", parser_class=ArgumentParser)
    for name, entry in COMMANDS.items():
        parser = entry.parser()
        for action in parser._actions:
            last = action.dest.rpartition(".")[2]
            kind = LISTS.get(action.dest, LISTS.get(last))
            if kind:
                action.complete = shtab.cmd(f"attnfaith list {kind} --names")
            elif last in FOLDERS:
                action.complete = shtab.DIRECTORY
            elif last in FILES:
                action.complete = shtab.FILE
        subparsers.add_parser(name, help=entry.summary, parents=[parser], add_help=False)
    print(shtab.complete(whole, shell=args.shell))


@command(name="install-metric")
def install_metric(_args):
    """Make `evaluate.load("attention_faithfulness")` work without importing attnfaith."""
    from attnfaith.metrics import registration

    print(f"installed: {registration.install_metric()}")

"""Make `evaluate.load("attention_faithfulness")` work without importing attnfaith."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.usage import Parser


def parser() -> Parser:
    return Parser("install-metric", __doc__)


def main(arguments: Sequence[str] | None = None) -> Path:
    parser().parse_args(arguments)
    from attnfaith.metrics import registration

    path = registration.install_metric()
    print(f"installed: {path}")
    return path

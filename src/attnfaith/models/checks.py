"""A check of values that traced graphs keep."""

import torch


def refuse(wrong: torch.Tensor, message: str) -> None:
    """Raises ValueError with the message where anything in `wrong` (B, ...) bool is true; {row} in it says in which row.

    A graph traced by torch.compile or torch.export has the check in it and stops with a RuntimeError of that message. One
    exported to ONNX has none: that format knows no assertions.
    """
    if torch.compiler.is_compiling():
        torch._assert_async(~wrong.any(), message.format(row="a row"))
    elif bool(wrong.any()):
        raise ValueError(message.format(row=f"row {int(wrong.nonzero()[0, 0])}"))

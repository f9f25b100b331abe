"""Several processes on this machine that carry out one command together: `attnfaith train --processes 2`.

`accelerate launch` starts them too, and shows its own traceback where one of them ends with an error. Here the process that
started them reports the error once.
"""

import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from attnfaith.errors import AttnfaithError


LAUNCHED = "ATTNFAITH_LAUNCHED"  # set in the processes that `launch` starts: it reports their errors


def launch(command: str, arguments: Sequence[str], processes: int) -> int:
    """Run a command (`cli.COMMANDS`) in so many processes, one for each GPU or each on the CPU; the exit code of all.

    Raises AttnfaithError with what the first process that failed says, and KeyboardInterrupt where they are stopped.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with TemporaryDirectory(ignore_cleanup_errors=True) as logs:
        # where one process ends, the others fail too: their output is kept, and shown only where it is the cause
        quiet = DefaultLogsSpecs(log_dir=logs, redirects=dict.fromkeys(range(1, processes), Std.ERR))
        where = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "attnfaith"}  # on any free port
        config = LaunchConfig(1, 1, processes, max_restarts=0, logs_specs=quiet, **where)
        os.environ[LAUNCHED] = "1"
        try:
            elastic_launch(config, sys.executable)("-m", "attnfaith", command, *arguments)
        except ChildFailedError as failed:
            _, first = failed.get_first_failure()
            if isinstance(message := first.error_file_data.get("message"), str) and first.exitcode == 2:
                raise AttnfaithError(message) from None
            for log in logs.glob(f"**/{first.local_rank}/stderr.log"):
                print(log.read_text(encoding="utf-8", errors="replace"), file=sys.stderr)
            return first.exitcode if first.exitcode > 0 else 128 - first.exitcode
        except SignalException as stopped:
            raise KeyboardInterrupt from stopped
        finally:
            del os.environ[LAUNCHED]
    return 0


def tell_parent(message: str) -> bool:
    """Leave an error where the process that started this one reads it; False in a process that `launch` did not start."""
    if LAUNCHED not in os.environ or "TORCHELASTIC_ERROR_FILE" not in os.environ:
        return False
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": message}), encoding="utf-8")
    return True

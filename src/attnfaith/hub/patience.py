"""What fails at the Hub: what passes is tried again, what does not is said in words."""

import json
import time
from collections.abc import Callable

from huggingface_hub import constants
from huggingface_hub.errors import (
    HTTPError,
    OfflineModeIsEnabled,
)

from attnfaith.hub.repo import HubError


PASSES = {412, 429, 500, 502, 503, 504}
WAITS = (1, 4)  # seconds before the second and the third try; the client waits too, within one
PATIENCE = 60  # seconds that the Hub may ask to wait


class OtherContent(OSError):
    """A file came, but not as the Hub says it is."""


def patiently(step: Callable, what: str):
    """The step's result; what passes is tried again. Raises HubError, in words, for what does not."""
    for wait in (*WAITS, None):
        try:
            return step()
        except HubError:
            raise
        except (HTTPError, OSError, ValueError, RuntimeError) as raised:
            # the client wraps what goes wrong with one file
            error = raised.__cause__ if isinstance(raised, RuntimeError) and raised.__cause__ else raised
            asked = _asked_to_wait(error)
            if wait is None or not _passes(error) or asked > PATIENCE:
                raise HubError(f"{what}: {_reason(error)}") from error
            print(f"{what}: {_reason(error)}; trying again in {max(asked, wait):g} s", flush=True)
            time.sleep(max(asked, wait))


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _passes(error: Exception) -> bool:
    if isinstance(error, OfflineModeIsEnabled):
        return False
    if (status := _status(error)) is not None:
        return status in PASSES
    return isinstance(error, HTTPError | ConnectionError | TimeoutError | json.JSONDecodeError | OtherContent)


def _asked_to_wait(error: Exception) -> float:
    """Seconds, from the answer's Retry-After; 0 where it asks nothing."""
    said = getattr(getattr(error, "response", None), "headers", {}).get("Retry-After", "")
    return float(said) if said.isdigit() else 0.0


def _reason(error: Exception) -> str:
    """One line for a user, without addresses or tokens."""
    status, again = _status(error), "push again: what is there is kept, what is missing is sent"
    said = {
        400: f"the Hub refuses what was sent; {again}",
        401: "the Hub does not know the access token, or it has expired: log in with `hf auth login`, then push again",
        403: "the access token may not write there: use one that may, or push to another owner",
        404: "there is no such repository, or the access token may not see it",
        409: f"it is being made by somebody else at this moment; {again}",
        412: f"somebody else changed it at the same moment; {again}",
        429: f"the Hub asks to wait{_for(error)}: too many requests; later, {again}",
    }
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so the Hub is not asked: unset it, then push again"
    if status is not None:
        return said.get(status, f"the Hub fails ({status}); later, {again}")
    if isinstance(error, OtherContent):
        return f"{error}; {again}"
    if isinstance(error, json.JSONDecodeError):
        return f"the Hub fails (an answer that is none); later, {again}"
    if isinstance(error, HTTPError | ConnectionError | TimeoutError):
        return f"no connection to {constants.ENDPOINT}, or it was lost ({type(error).__name__}); {again}"
    return " ".join(str(error).split())


def _for(error: Exception) -> str:
    return f" {asked:g} s" if (asked := _asked_to_wait(error)) else ""

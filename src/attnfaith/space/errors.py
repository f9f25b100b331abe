"""What the Space refuses, each with what to do."""

from attnfaith.errors import AttnfaithError


class SpaceError(AttnfaithError):
    """A model, a text or weights that the Space does not take."""


class GradioError(AttnfaithError, ImportError):
    """gradio is missing."""

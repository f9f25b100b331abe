"""Errors of reports."""

from attnfaith.support.errors import AttnfaithError, FileError


class ReportError(AttnfaithError):
    """Records, names or numbers that cannot be reported as they are."""


class FolderError(FileError, FileExistsError):
    """A folder that holds anything but a report."""


class PlotsError(AttnfaithError, ImportError):
    """matplotlib is missing."""

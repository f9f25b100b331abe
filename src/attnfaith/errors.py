"""What a user can mend: the one error base of the package.

The command line turns an `AttnfaithError` into one line and exit code 2; any other exception is a fault of the package and
shows its traceback.
"""


class AttnfaithError(ValueError):
    """Something given, or something on this machine, that the work cannot be done with. The message says what was given,
    what is allowed and what to do.
    """


class DatasetError(AttnfaithError):
    """A data set, file, column, label or text that cannot be used as asked."""


class FileError(AttnfaithError, OSError):
    """A file or folder that cannot be read, written or locked."""

"""The one exception type of everything that reads a file."""


class CheckpointError(ValueError):
    """A file or folder is not what it claims to be, or not what we can run.

    The message starts with the file's name, says what was found, and what to do next.
    """

"""Errors that trainperf raises; each message names the fix."""


class TrainperfError(Exception):
    """Base class of trainperf's errors."""


class AlreadyWatchingError(TrainperfError, RuntimeError):
    """A second watch was started in a process that is being watched."""


class TrainperfWarning(UserWarning):
    """A run could not be written where it should be; the text says where it is."""


class RunFileError(TrainperfError):
    """A file cannot be opened as a run: missing, foreign, truncated, or of another schema."""

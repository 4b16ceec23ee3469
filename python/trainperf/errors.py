"""Errors that trainperf raises; each message names the mend."""


class TrainperfError(Exception):
    """Base of all."""


class AlreadyWatchingError(TrainperfError, RuntimeError):
    """A second watch was started in a process that is being watched."""


class RunFileError(TrainperfError):
    """A file cannot be opened as a run: missing, foreign, truncated, or of another schema."""

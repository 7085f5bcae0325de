"""The errors that reach a user: one clear sentence each, ending in a hint where one helps.

Messages and hints name arguments as Python callers know them, in backticks: "Use at most
`disparities=96`".  The command line turns these into its options.
"""

from __future__ import annotations


class StereoError(Exception):
    """A failure that the user can understand and act on; the CLI prints it and exits with 1.

    Parameters
    ----------
    message
        What went wrong, one sentence without the final full stop.
    hint
        What to do about it, one sentence without the final full stop; a question has its mark.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        end = "" if hint and hint.endswith("?") else "."
        super().__init__(f"{message}. {hint}{end}" if hint else f"{message}.")


class InputError(StereoError):
    """An input file or array cannot be used as given."""


class OutputError(StereoError):
    """A result cannot be written where the user asked for it."""


class ModelError(StereoError):
    """A model is unknown, or its file is damaged or does not describe a model we can run."""


class DeviceError(StereoError):
    """The requested device is not there or does not work."""


class InstallError(StereoError, ImportError):
    """Something that we need is not installed, or cannot be loaded."""


class OutOfMemoryError(StereoError):
    """The work needs more memory than the device has free."""


class NumericsError(StereoError):
    """A stage computed numbers that are not finite."""


def shortened(value: object, most: int = 60) -> str:
    """A value as it is shown in a message: printable, on one line and not too long."""
    text = value if isinstance(value, str) else repr(value)
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: most + 1])
    return plain if len(plain) <= most else plain[:most] + "..."

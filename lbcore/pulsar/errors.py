"""Refusals of Pulsar's admin interface: a status and the sentence its tools print.

Decides the written form only. Raised by the readers of requests in this package, and answered as
{"reason": ...}. Source: Pulsar 4.0.8, RestException.
"""

BAD_REQUEST = 400
FORBIDDEN = 403
NOT_FOUND = 404
NOT_ALLOWED = 405
NOT_ACCEPTABLE = 406
CONFLICT = 409
PRECONDITION_FAILED = 412
UNPROCESSABLE = 422
SERVER_ERROR = 500
NOT_IMPLEMENTED = 501

_UNEXPECTED = "\n --- An unexpected error occurred in the server ---\n\n"


class PulsarError(Exception):
    """Pulsar's error response to a request that it refuses."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def unexpected(message: str, exception: str, why: str = "") -> str:
    """Return the reason of a 500 as Pulsar writes it.

    It includes what stands for the stack's first frame. message: "null" for an exception without
    one. exception: the Java class. why: a sentence of ours in place of Pulsar's frames.
    """
    line = exception if message == "null" else f"{exception}: {message}"
    frame = f"\tat {why}\n" if why else ""
    return f"{_UNEXPECTED}Message: {message}\n\nStacktrace:\n\n{line}\n{frame}"


def namespace_not_found() -> PulsarError:
    """The namespace does not exist, said where its cluster is looked up first."""
    return PulsarError(NOT_FOUND, "Namespace not found")


def namespace_does_not_exist() -> PulsarError:
    """The namespace does not exist, said where its policies are read."""
    return PulsarError(NOT_FOUND, "Namespace does not exist")

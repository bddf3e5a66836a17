"""Optional parts of the distribution: modules, and the error without them."""

from importlib.util import find_spec

from jobs.console import CommandError

DISTRIBUTION = "ballast-balancer"
EXTRAS = {
    "pyspark": "job",
    "py4j": "job",
    "pandas": "job",
    "uvicorn": "service",
    "httptools": "service",
    "uvloop": "service",
    "matplotlib": "plots",
}
"""Module → the extra that installs it."""


def missing_extra(verb: str, module: str) -> CommandError | None:
    """The error of a verb that can't import a module; None when no extra has it."""
    extra = EXTRAS.get(module.split(".", maxsplit=1)[0])
    if extra is None:
        return None
    return CommandError(
        f"`ballast {verb}` needs {module}, which is not installed",
        why=f"ballast was installed without its extra {extra!r}",
        next_step=f"run pip install '{DISTRIBUTION}[{extra}]'",
    )


def require(verb: str, *modules: str) -> None:
    """Raise CommandError for the first of the modules that is not installed."""
    for module in modules:
        if find_spec(module) is None and (error := missing_extra(verb, module)):
            raise error

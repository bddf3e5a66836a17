"""A machine so busy that Spark's Python worker comes too late: the job begins again and goes on."""

from pathlib import Path

import pytest

from tests.integration import slow_worker
from tests.integration.stack import ROOT, Cluster, Stack, running_stack

CLUSTER = Cluster(brokers=2, namespaces={"demo/one": ("crc32", 4)})


class BusyStack(Stack):
    """A stack whose job's first worker takes longer than Spark waits."""

    @property
    def told(self) -> Path:
        """Is there once a worker has been late."""
        return self.folder / "was-late"

    def environment(self, role: str) -> dict[str, str]:
        """The worker is slow in the job alone."""
        path = f"{Path(slow_worker.__file__).parent}:{ROOT}"
        return (
            {"PYTHONPATH": path, "BALLAST_TEST_WAS_LATE": str(self.told)} if role == "job" else {}
        )


@pytest.mark.long
def test_job_whose_worker_came_too_late_begins_again_and_serves(tmp_path: Path) -> None:
    with running_stack(tmp_path, CLUSTER, kind=BusyStack) as stack:
        assert isinstance(stack, BusyStack)
        assert stack.told.exists()
        assert stack.stop("job") == 0
        said = (tmp_path / "job.log").read_text()
        assert "Spark's Python worker did not start within 10 s (1 of 6 tries)" in said

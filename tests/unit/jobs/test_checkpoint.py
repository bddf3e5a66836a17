"""Which checkpoint the job goes on from, and when the state is rebuilt from the tables."""

from dataclasses import replace
from pathlib import Path

from jobs.adapters.checkpoint import Manifest, choose_checkpoint

_PRESENT = Manifest(code_version="c1", config_version="f1", scorer_groups=2, checkpoint="")


def _spark_ran(checkpoint: Path, *, begun: int, ended: int) -> None:
    """Leave behind what Spark does: batches 0..begun-1 begun, 0..ended-1 finished."""
    for folder, count in (("offsets", begun), ("commits", ended)):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        for batch in range(count):
            (checkpoint / folder / str(batch)).touch()
    (checkpoint / "metadata").write_text('{"id": "q"}')


def test_checkpoint_of_a_first_start_is_new(tmp_path: Path) -> None:
    chosen = choose_checkpoint(tmp_path, _PRESENT, epoch=0)
    assert (chosen.checkpoint.name, chosen.is_rebuilt) == ("epoch-0", True)


def test_checkpoint_with_finished_batches_goes_on(tmp_path: Path) -> None:
    first = choose_checkpoint(tmp_path, _PRESENT, epoch=0)
    _spark_ran(first.checkpoint, begun=3, ended=2)
    chosen = choose_checkpoint(tmp_path, _PRESENT, epoch=1)
    assert (chosen.checkpoint, chosen.reason) == (first.checkpoint, "")


def test_checkpoint_without_a_finished_batch_is_rebuilt_anew(tmp_path: Path) -> None:
    first = choose_checkpoint(tmp_path, _PRESENT, epoch=0)
    _spark_ran(first.checkpoint, begun=1, ended=0)
    chosen = choose_checkpoint(tmp_path, _PRESENT, epoch=1)
    assert (chosen.checkpoint.name, chosen.is_rebuilt) == ("epoch-1", True)


def test_checkpoint_left_unfinished_by_other_code_is_rebuilt(tmp_path: Path) -> None:
    first = choose_checkpoint(tmp_path, _PRESENT, epoch=0)
    _spark_ran(first.checkpoint, begun=3, ended=2)
    other = replace(_PRESENT, code_version="c2")
    assert choose_checkpoint(tmp_path, other, epoch=1).checkpoint.name == "epoch-1"


def test_checkpoint_finished_by_other_code_goes_on(tmp_path: Path) -> None:
    first = choose_checkpoint(tmp_path, _PRESENT, epoch=0)
    _spark_ran(first.checkpoint, begun=3, ended=3)
    other = replace(_PRESENT, code_version="c2")
    assert choose_checkpoint(tmp_path, other, epoch=1).reason == ""


def test_checkpoint_of_another_number_of_groups_is_rebuilt(tmp_path: Path) -> None:
    first = choose_checkpoint(tmp_path, _PRESENT, epoch=0)
    _spark_ran(first.checkpoint, begun=3, ended=3)
    other = replace(_PRESENT, scorer_groups=4)
    assert choose_checkpoint(tmp_path, other, epoch=1).is_rebuilt

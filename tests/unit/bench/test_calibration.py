"""The calibration loops run, and their figures are those of loops that did their work."""

from tests.bench.calibration import ROUNDS, Calibration, _least_ms, calibrate


def test_calibration_on_this_machine_measures_each_loop() -> None:
    found = calibrate()
    assert found.numpy_ms > 0
    assert found.python_ms > 0
    assert found.jvm_ms is not None
    assert found.jvm_ms > 0


def test_least_ms_of_a_loop_runs_every_round() -> None:
    rounds: list[int] = []
    _least_ms(lambda: rounds.append(1))
    assert len(rounds) == ROUNDS


def test_line_without_a_java_says_so() -> None:
    found = Calibration(numpy_ms=12.34, python_ms=5.0, jvm_ms=None, load_average=2.0)
    assert found.line() == (
        "calibration, CPU ms: numpy loop 12.3, Python loop 5.0, JVM loop no Java (load 2.0)"
    )

"""Every case in cases/ through lbcore's public functions: as Pulsar 4.0.8 or 4.2.4 answers."""

from pathlib import Path

import pytest

from tests.conformance.compare import first_difference
from tests.conformance.runner import Case, difference, main, read_cases

FILES = sorted((Path(__file__).parent / "cases").rglob("*.jsonl"))
CASES = [
    pytest.param(case, id=f"{path.parent.name}/{path.stem}:{case['id']}")
    for path in FILES
    for case in read_cases(path)
]


@pytest.mark.parametrize("case", CASES)
def test_case_answered_by_lbcore_equals_pulsar(case: Case) -> None:
    assert difference(case) is None


def test_runner_unknown_function_exits_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.jsonl"
    path.write_text('{"id": "x", "fn": "no_such", "expected": {}}\n')
    assert main([str(path)]) == 2
    assert "unknown fn 'no_such'" in capsys.readouterr().err


def test_runner_judges_by_the_rules_that_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parent / "cases"
    newer, older = folder / "4.2.4" / "upstream.jsonl", folder / "upstream.jsonl"
    assert main([str(newer)]) == main(["--rules", "4.2", str(newer)]) == 0
    assert main(["--rules", "4.0", str(newer)]) == main(["--rules", "4.2", str(older)]) == 1
    assert main(["--rules", "3.3", str(newer)]) == 2
    assert "3 failed" in capsys.readouterr().out


def test_runner_missing_file_exits_two(tmp_path: Path) -> None:
    assert main([str(tmp_path / "none.jsonl")]) == 2


@pytest.mark.parametrize(
    ("expected", "answer", "where"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, "a[1]"),
        ({"a": 1}, {}, "a: expected 1, got nothing"),
        ({}, {"b": 1}, "b: expected nothing"),
        ([1], [1, 2], "expected 1 entries"),
        (True, 1, "expected True"),
        (0.1 + 0.2, 0.3, "expected 0.30000000000000004"),
        ({"loadAvg": 1.0}, {"loadAvg": 1.0 + 1e-10}, "loadAvg"),
    ],
)
def test_comparison_of_different_answers_names_the_place(
    expected: object, answer: object, where: str
) -> None:
    found = first_difference(expected, answer)
    assert found is not None
    assert where in found


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        (1, 1.0),
        (float("nan"), float("nan")),
        ("NaN", float("nan")),
        ("-Infinity", float("-inf")),
        ({"loadAvg": 1.0}, {"loadAvg": 1.0 + 1e-14}),
        ([1, [2]], (1, (2,))),
        (None, None),
    ],
)
def test_comparison_of_equal_answers_finds_nothing(expected: object, answer: object) -> None:
    assert first_difference(expected, answer) is None

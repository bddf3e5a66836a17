"""Packing: contents come back, equal contents give equal bytes, damage is named."""

import numpy as np
import pytest

from lbcore import packing


def test_blob_unpacked_gives_its_contents() -> None:
    arrays = {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": np.array([True, False])}
    plain, found = packing.unpack(packing.pack({"x": [1, "é", None]}, arrays))
    assert plain == {"x": [1, "é", None]}
    assert all((found[name] == arrays[name]).all() for name in arrays)
    assert found["a"].dtype == np.int32


def test_blob_of_equal_contents_has_equal_bytes_in_any_order() -> None:
    one = packing.pack({"x": 1, "y": 2}, {"a": np.zeros(2), "b": np.ones(1)})
    other = packing.pack({"y": 2, "x": 1}, {"b": np.ones(1), "a": np.zeros(2)})
    assert one == other


@pytest.mark.parametrize("cut", [0, 3, 9, 40])
def test_blob_that_was_cut_is_refused_with_what_to_do(cut: int) -> None:
    blob = packing.pack({"x": 1}, {"a": np.arange(100)})
    with pytest.raises(packing.MalformedBlobError, match="ballast state rebuild"):
        packing.unpack(blob[:cut])


def test_blob_with_another_beginning_is_refused() -> None:
    blob = packing.pack({}, {})
    with pytest.raises(packing.MalformedBlobError):
        packing.unpack(b"XXXX" + blob[4:])


@pytest.mark.parametrize("names", [[], [""], ["a"], ["a", "", "é"]])
def test_names_joined_come_back(names: list[str]) -> None:
    assert packing.split_names(packing.join_names(names), len(names)) == names

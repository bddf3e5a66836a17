"""The planner's view of bundles: names and rows find each other."""

import numpy as np

from lbcore.plan.snapshot import Names, names_at

ALL = [f"t/n/{at:02}" for at in range(10)]
INDEX = {name: at for at, name in enumerate(ALL)}


def test_names_of_some_rows_are_found_as_if_there_were_no_others() -> None:
    for rows in ([], [0], [9], [1, 4, 9], list(range(10))):
        some = names_at(ALL, INDEX, np.array(rows, dtype=np.int64))
        alone = Names(some)
        assert list(some) == [ALL[row] for row in rows]
        for name in (*ALL, "", "t/n/10"):
            assert some.find(name) == alone.find(name), (rows, name)

"""`python -m tests.conformance FILE.jsonl ...`: run conformance cases, exit 1 on a failure.

Exit 2 when a file can't be read or a case names a function that nobody knows.
"""

import sys

from tests.conformance.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

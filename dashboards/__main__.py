"""Command `python -m dashboards`: writes alerts.yml and the dashboards' JSON here.

--runbook-url URL: where your users read docs/runbook.md; --output DIR: write there instead.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from dashboards.grafana import to_json
from dashboards.pages import PAGES
from dashboards.rules import RUNBOOK, render_rules


def main(argv: Sequence[str] | None = None) -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument("--runbook-url", default=RUNBOOK, metavar="URL")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, metavar="DIR")
    args = parser.parse_args(argv)
    rules = render_rules(runbook=args.runbook_url)
    (args.output / "alerts.yml").write_text(rules, encoding="utf-8")
    for page in PAGES:
        (args.output / f"{page.slug}.json").write_text(to_json(page), encoding="utf-8")


if __name__ == "__main__":
    main()

"""`python -m dashboards`: write alerts.yml and the dashboards' JSON beside this file."""

from pathlib import Path

from dashboards.grafana import to_json
from dashboards.pages import PAGES
from dashboards.rules import render_rules

HERE = Path(__file__).parent


def main() -> None:
    """Write all files."""
    (HERE / "alerts.yml").write_text(render_rules(), encoding="utf-8")
    for page in PAGES:
        (HERE / f"{page.slug}.json").write_text(to_json(page), encoding="utf-8")


if __name__ == "__main__":
    main()

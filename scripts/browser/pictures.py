"""Pictures of the report and the site for the documentation: python -m scripts.browser.pictures FOLDER."""

import sys
import tempfile
from pathlib import Path

from scripts.browser import chromium, dumps


def take(folder):
    """Train, report, build the site, and write the pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, chromium.launched() as browser:
        report = Path(dumps.trained(work))
        report.write_text(report.read_text(encoding="utf-8").replace(work, "/home/you"), encoding="utf-8")
        take_report(browser, report, folder)
        page = browser.new_page(viewport={"width": 1180, "height": 900})
        page.goto((dumps.site(Path(work) / "site") / "index.html").as_uri())
        page.screenshot(path=folder / "site.png")
        page = browser.new_page(viewport={"width": 1000, "height": 500})
        page.goto((folder.resolve() / "readme.svg").as_uri())
        page.locator("svg").screenshot(path=folder / "readme.png")


def take_report(browser, path, folder):
    """Write the pictures of a report's page into a folder."""
    page = browser.new_page(viewport={"width": 1180, "height": 720})
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    page.screenshot(path=folder / "report-wrong.png")
    page.click("#wrong details[open] a.operator.scripted")
    page.wait_for_selector("body[data-shown]")
    page.locator("#detail").evaluate("detail => window.scrollTo(0, detail.offsetTop)")
    page.screenshot(path=folder / "report-operator.png")
    page.emulate_media(color_scheme="dark")
    page.locator("#map").evaluate("map => window.scrollTo(0, map.offsetTop)")
    page.screenshot(path=folder / "report-map.png")


if __name__ == "__main__":
    take(Path(sys.argv[1]))

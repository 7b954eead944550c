"""Fixtures of the browser's tests: a browser, and pages of a failed training and of a large network."""

import pytest

from scripts.browser import chromium, dumps
from tests.world import cli


def pytest_collection_modifyitems(items):
    """Mark all tests here: they need a browser, and run by a command of their own."""
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser():
    """Return a chromium; without one, or without playwright, the tests are skipped, and say so."""
    pytest.importorskip("playwright", reason="playwright is not installed; pip install --group browser")
    if chromium.executable() is None:
        pytest.skip("no chromium; on Debian: apt-get install chromium")
    with chromium.launched() as started:
        yield started


def reported(path, *arguments):
    """Write the page of a report."""
    done = cli("report", *arguments, "-o", path)
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="session")
def trained_page(browser, tmp_path_factory):
    """Return the page of a training with a kernel that is wrong, compared with one without."""
    folder = tmp_path_factory.mktemp("trained")
    dumps.trained(folder)
    faulty, golden = (folder / f"{side}/debug_dump" for side in ("faulty", "golden"))
    return reported(folder / "page.html", faulty, golden)


@pytest.fixture(scope="session")
def large_page(browser, tmp_path_factory):
    """Return the page of a network with 3,000 operators, in which an infinity begins."""
    folder = tmp_path_factory.mktemp("large")
    return reported(folder / "page.html", dumps.large(folder / "dump"))


@pytest.fixture
def opened(browser):
    """Return a function that opens a page and waits until it is drawn; an error in it fails the test."""
    faults = []
    contexts = []

    def call(path, fragment="", **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(path.as_uri() + fragment)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("body[data-ready]")
        return page

    yield call
    for context in contexts:
        context.close()
    assert [] == faults


@pytest.fixture
def large(opened, large_page):
    """Return the page of the large network, opened."""
    return opened(large_page)


@pytest.fixture
def trained(opened, trained_page):
    """Return the page of the training, opened."""
    return opened(trained_page)

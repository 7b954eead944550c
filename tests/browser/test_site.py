"""The documentation's site in a browser: the doors, their pictures, the search."""

from urllib.parse import quote

import pytest

from scripts.browser import dumps

DOORS = {"doors/dump.html", "doors/find.html", "doors/train.html", "doors/reference.html"}


@pytest.fixture(scope="module")
def site(browser, tmp_path_factory):
    """Return the folder of the built site."""
    return dumps.site(tmp_path_factory.mktemp("docs") / "site")


@pytest.fixture
def page(browser):
    """Return an empty page of the browser."""
    with browser.new_context() as context:
        yield context.new_page()


def test_first_page_has_four_doors(site, page):
    """The first page shows four pictures, and each of them leads to the page of a door."""
    page.goto((site / "index.html").as_uri())
    doors = page.locator("table a:has(img)")

    drawn = doors.locator("img").evaluate_all("all => all.filter(each => each.naturalWidth > 0).length")
    links = doors.evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert (4, DOORS) == (drawn, set(links))
    assert all((site / link).is_file() for link in links)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("segment", "glossary.html#segment"),
        ("NC1HWC0", "glossary.html#nc1hwc0"),
        ("float16 NaN overflows", "how-to/first-overflow.html"),
        ("is unknown and ignored", "reference/messages.html"),
        ("data.json:4: $.common_dump_settings.dump_mode = 7: must be 0, 1 or 2", "reference/messages.html"),
    ],
)
def test_search_finds(site, page, query, found):
    """The search finds terms, problems and error messages."""
    page.goto(f"{(site / 'search.html').as_uri()}?q={quote(query)}")
    page.wait_for_function(
        "document.querySelector('#search-results .search-summary')?.textContent.includes('found')"
    )

    links = page.locator("#search-results a").evaluate_all(
        "all => all.map(each => each.getAttribute('href'))"
    )
    assert found in links

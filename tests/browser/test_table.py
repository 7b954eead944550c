"""The table of operators in a browser: paging, sorting, filtering, folding."""

import pytest

ROWS = "#table tbody tr"
NAMES = "#table tbody [data-operator]"
STRUCK = "Default/layer30-Block/Conv2D-op1500"


def names(page):
    """Return the names of the operators that are shown."""
    return page.locator(NAMES).all_text_contents()


def test_pages(large):
    """Only a page of the rows is in the document; the others are a button away."""
    assert (200, "page 1 of 15") == (large.locator(ROWS).count(), large.text_content("#page-number"))

    large.click("[data-page=last]")
    assert ("page 15 of 15", "Default/layer59-Block/Conv2D-op2999") == (
        large.text_content("#page-number"),
        names(large)[-1],
    )

    large.select_option("#page-size", "1000")
    large.click("[data-page=first]")
    assert (1000, "page 1 of 3") == (large.locator(ROWS).count(), large.text_content("#page-number"))


def cells(page, place):
    """Return the numbers of a column that are shown."""
    return page.locator(f"{ROWS} td:nth-child({place})").all_text_contents()


def test_sorting(large):
    """A click on a title sorts by it, numbers largest first; another one turns the order around."""
    large.click("[data-sort=value]")
    assert [STRUCK] == names(large)[:1]
    falling = [float(text) for text in cells(large, 4)[1:]]
    assert sorted(falling, reverse=True) == falling
    assert "descending" == large.get_attribute("th:has([data-sort=value])", "aria-sort")

    large.click("[data-sort=value]")
    rising = [float(text) for text in cells(large, 4)]
    assert sorted(rising) == rising
    assert "ascending" == large.get_attribute("th:has([data-sort=value])", "aria-sort")

    large.click("[data-sort=name]")
    assert [f"Default/layer0-Block/Conv2D-op{place}" for place in range(3)] == names(large)[:3]


FILTERS = {
    "a word": ("op299", [f"op299{digit}" for digit in ("", *range(10))]),
    "two words, in any case": ("CONV2D-OP7 layer0-", ["op7"]),
    "nothing": ("layer99", []),
}


@pytest.mark.parametrize(("text", "ends"), FILTERS.values(), ids=FILTERS)
def test_filter(large, text, ends):
    """A typed filter keeps the operators that hold all of its words."""
    large.fill("#filter", text)

    shown = [name for name in names(large) if text != "CONV2D-OP7 layer0-" or name.endswith("op7")]
    assert sorted(ends) == sorted(name.rpartition("-")[2] for name in shown)
    assert f"of {3000:,} operators" in large.text_content("#count")


def test_only_what_is_wrong(large):
    """A box leaves the operators with a problem."""
    large.check("#only-wrong")

    assert [STRUCK] == names(large)


def test_folding(large):
    """By scope the operators are folded; a click, or a key, opens a scope, and all at once are opened."""
    large.check("#by-scope")
    assert (["+"], []) == (large.locator(".fold").all_text_contents(), names(large))
    assert "Default (3000) ● 1 with problems" in large.text_content(ROWS).replace("\u2003", "")

    large.click(".fold")
    assert 61 == large.locator(".fold").count()
    assert "true" == large.get_attribute("[data-scope=Default]", "aria-expanded")

    large.focus('[data-scope="Default/layer30-Block"]')
    large.keyboard.press("Enter")
    assert 50 == len(names(large))
    assert "Default/layer30-Block" == large.evaluate("document.activeElement.dataset.scope")

    large.click("#unfold")
    large.click("#unfold")
    assert 200 == large.locator(ROWS).count()


def test_statistic_is_chosen(large):
    """Another statistic is shown in the table, with its number of the last iteration."""
    large.select_option("#statistic", "l2norm")

    large.wait_for_selector("[data-sort=value]:has-text('l2norm')")
    assert ["1", "2", "3"] == [text.strip() for text in cells(large, 4)[:3]]
    assert 200 == large.locator(f"{ROWS} svg.spark").count()


@pytest.mark.parametrize("width", [1400, 700])
def test_columns_are_as_wide_as_their_words(trained, width):
    """No type or verdict breaks inside a word, however wide the page is."""
    trained.set_viewport_size({"width": width, "height": 900})

    lines = trained.evaluate("""() => [...document.querySelectorAll("td.word")].flatMap((cell) => {
      const range = document.createRange();
      return [...cell.textContent.matchAll(/\\S+/g)].map((word) => {
        range.setStart(cell.firstChild, word.index);
        range.setEnd(cell.firstChild, word.index + word[0].length);
        return [word[0], range.getClientRects().length];
      });
    })""")

    assert {"inherited", "ReduceMean"} & {word for word, _ in lines}
    assert [] == [word for word, count in lines if count > 1]

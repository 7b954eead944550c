"""The page in a browser: links, details, charts, colours, accessibility, print, no JavaScript."""

from pathlib import Path
from urllib.parse import unquote

import pytest

SECTIONS = ("operators", "map", "training", "depth", "spread")
STRUCK = "Default/layer30-Block/Conv2D-op1500"
FAULTY = "ReluGrad"


def test_headline_names_the_fault(trained):
    """The first line of the page is the kernel that is wrong."""
    assert FAULTY in trained.text_content("h1")
    assert trained.title() == trained.text_content("h1")


def test_every_section_is_drawn(trained):
    """A training that is compared has all sections, and each of them a picture or a table."""
    hidden = [name for name in SECTIONS if trained.locator(f"#{name}").is_hidden()]

    assert [] == hidden
    assert (2, 1) == tuple(trained.locator(f"#{name} svg").count() for name in ("curves", "depth-chart"))
    assert 1 <= trained.locator("#histograms svg").count()


def test_charts_show_the_numbers(trained):
    """The curve of the loss begins and ends at the dumped iterations, and its axis shows its extremes."""
    texts = trained.locator("#curves svg").first.locator("text").all_text_contents()
    rows = trained.locator("#training tbody tr").first.locator("td").all_text_contents()

    losses = [float(text) for text in rows[1:]]
    assert ["0", "3"] == texts[-2:]
    assert [f"{max(losses):.5g}", f"{min(losses):.5g}"] == texts[:2]


def test_links_lead_to_files(trained, trained_page):
    """The files of a problem are there, from where the page lies."""
    links = trained.locator("#wrong ul.files a").evaluate_all(
        "all => all.map(each => each.getAttribute('href'))"
    )

    assert links
    assert [] == [link for link in links if not (trained_page.parent / unquote(link)).is_file()]


def test_details_and_neighbours(trained):
    """An operator is shown with its numbers; a click on a neighbour shows that one; Escape closes it."""
    trained.click("#wrong details[open] a.operator.scripted")
    trained.wait_for_selector("body[data-shown]")
    first = trained.text_content("#detail-title")
    assert FAULTY in first
    assert trained.locator("#detail-charts svg").count() > 0
    assert trained.locator("#detail-histograms svg").count() == 1
    assert f"{first}, at fault" == trained.get_attribute("#neighbours .node.self", "aria-label")

    other = trained.locator("#neighbours .node:not(.self)").first
    name = other.locator("title").text_content()
    other.focus()
    trained.keyboard.press("Enter")
    trained.wait_for_function(
        "name => document.getElementById('detail-title').textContent === name", arg=name
    )

    trained.keyboard.press("Escape")
    assert trained.locator("#detail").is_hidden()


def test_address_of_an_operator(opened, large_page):
    """An address with an operator in it opens the page at that operator."""
    page = opened(large_page, "#operator-1500")

    page.wait_for_selector("body[data-shown]")
    assert STRUCK == page.text_content("#detail-title")


def test_heat_map(large):
    """The map is drawn, infinities in a colour of their own; arrow keys read it, Enter opens an operator."""
    large.select_option("#map-statistic", "max")
    colours = large.evaluate("""() => {
        const canvas = document.getElementById("heat");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const colours = new Set();
        for (let at = 0; at < data.length; at += 4) colours.add(data.slice(at, at + 3).join(" "));
        return [...colours];
    }""")
    assert "213 94 0" in colours
    assert len(colours) > 10

    large.focus("#heat")
    large.keyboard.press("ArrowDown")
    large.keyboard.press("ArrowRight")
    assert "Default/layer0-Block/Conv2D-op1, iteration 1: max 1919.1" in large.text_content("#heat-cell")
    large.keyboard.press("Enter")
    large.wait_for_selector("body[data-shown='1']")


@pytest.mark.parametrize(("scheme", "chosen"), [("dark", ""), ("light", "dark")], ids=["system's", "chosen"])
def test_dark(opened, large_page, scheme, chosen):
    """Dark colours follow the system, or the choice on the page."""
    page = opened(large_page, color_scheme=scheme)
    if chosen:
        page.select_option("#theme", chosen)

    assert "rgb(23, 23, 27)" == page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(opened, trained_page, scheme):
    """The rules of axe-core find nothing, in light and in dark, with an operator open and scopes folded."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(trained_page, color_scheme=scheme)
    page.check("#by-scope")
    page.click("#wrong details[open] a.operator.scripted")
    page.wait_for_selector("body[data-shown]")

    found = axe.run(page)

    assert 0 == found.violations_count, found.generate_report()


def test_without_javascript(opened, trained_page):
    """Without JavaScript the fault, its place and its files can be read; interactive parts are hidden."""
    page = opened(trained_page, java_script_enabled=False)

    assert FAULTY in page.locator("#wrong table").first.text_content()
    assert page.locator("#wrong details[open] ul.files a").count() > 0
    assert page.locator("#operators").is_hidden()
    assert page.locator("a.scripted").first.is_hidden()
    assert "msdump report --csv" in page.locator("noscript").inner_text()


def test_without_style(opened, trained_page, tmp_path):
    """Without style sheet and program, as Jenkins shows it, the page holds the same words."""
    text = trained_page.read_text(encoding="utf-8")
    head, _, rest = text.partition("<style>")
    stripped = tmp_path / "stripped.html"
    stripped.write_text(head + rest.partition("</style>")[2].rpartition("<script>")[0], encoding="utf-8")

    page = opened(stripped, java_script_enabled=False)

    assert FAULTY in page.inner_text("#wrong")


def test_print(trained, tmp_path):
    """Printed, the page has no controls, and the problems stand on it."""
    trained.emulate_media(media="print")

    assert trained.locator("#filters").is_hidden()
    assert trained.locator("#wrong table").first.is_visible()
    assert len(trained.pdf()) > 10_000


def test_nothing_is_asked_for(browser, trained_page):
    """The page loads nothing but itself."""
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(trained_page.as_uri())
    page.wait_for_selector("body[data-ready]")
    page.close()

    assert [Path(trained_page).as_uri()] == asked


def test_hostile_names(opened, tmp_path):
    """Scripts in names are text, and marks of direction are shown as such."""
    from scripts.browser import dumps
    from tests.browser.conftest import reported

    name = "<img src=x onerror=document.title=1>\u202e</script>"
    folder = tmp_path / "dump/rank_0/Net/0/0"
    folder.mkdir(parents=True)
    row = f'Add,{name},0,0,1795217009000000,output,0,24,float32,"(2,3)",inf,-1,2'
    (folder / "statistic.csv").write_text(f"{dumps.HEAD}\n{row}\n", encoding="utf-8")

    page = opened(reported(tmp_path / "page.html", tmp_path / "dump"))

    assert ["<img src=x onerror=document.title=1>\\u202e</script>"] == page.locator(
        "[data-operator]"
    ).all_text_contents()
    assert 0 == page.locator("img").count()
    assert page.title().startswith("<img")


def test_nothing_was_dumped_yet(opened, tmp_path):
    """A dump without a tensor yet gives a page that says so."""
    from tests.browser.conftest import reported

    (tmp_path / "dump/rank_0/Net/0/0").mkdir(parents=True)

    page = opened(reported(tmp_path / "page.html", tmp_path / "dump"))

    assert "The dump is empty" == page.text_content("h1")


def test_compiled_model_of_acl(opened, tmp_path):
    """A model that acl ran has its fused operators in order, and no column that nothing stands in."""
    from scripts.browser import dumps
    from tests.browser.conftest import reported

    page = opened(reported(tmp_path / "page.html", dumps.called_by_acl(tmp_path / "acl")))

    assert "No problem was found" == page.text_content("h1")
    titles = page.locator("#table thead th").all_text_contents()
    assert ["#", "Operator", "Type", "max", "Non-finite"] == [title.strip(" ▲▼") for title in titles]
    names = page.locator("[data-operator]").all_text_contents()
    assert ["x", "fc3_MatMul_node_13fc3_Add_node_14"] == [names[0], names[-2]]
    shown = ("operators", "map")
    assert list(shown) == [name for name in SECTIONS if page.locator(f"#{name}").is_visible()]


def test_operator_that_failed(opened, tmp_path):
    """A dump of an exception alone names the operator, and its link leads to the file."""
    import numpy as np

    from tests.browser.conftest import reported
    from tests.judge import dumped

    path = tmp_path / "dump/extra-info/data-dump/0/Gather.gather.1.20260112093000123"
    dumped.file(path, inputs=[dumped.tensor(np.arange(4, dtype="i8"))], op_name="gather")

    page = opened(reported(tmp_path / "page.html", tmp_path / "dump"))

    assert page.text_content("h1").startswith("gather (Gather): it failed when it ran")
    assert ["Operator", "Type", "Problem"] == page.locator("#wrong thead th").all_text_contents()
    (link,) = page.locator("#wrong ul.files a").evaluate_all(
        "all => all.map(each => each.getAttribute('href'))"
    )
    assert path == tmp_path / unquote(link)

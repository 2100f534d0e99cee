"""The page in a real browser: no error, nothing asked of a network, every figure drawn, on any screen and on paper.

Needs the development extra's Playwright and a Chromium of the distribution's; skipped, and that visibly, without.
"""

from __future__ import annotations

import shutil

import pytest

from orchestrator.page.build import write_report
from tests.page.folders import make_run

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def pages(tiny, tmp_path_factory):
    """A single run, one with noise, and a comparison of two methods with two seeds."""
    folder = tmp_path_factory.mktemp("pages")
    noise = (
        "method={name: fedavg, stateful: false}",
        "privacy={clip_norm: 1, noise_multiplier: 1, epsilon_budget: 50}",
    )
    single = make_run(folder / "single", tiny(folder, "engine.name=embedded"), 8, left_out={0: "<b>late</b>"})
    private = make_run(folder / "private", tiny(folder, "federation.rounds=4", *noise), 4)
    several = [
        make_run(folder / f"{method}-{seed}", tiny(folder, f"method.name={method}", f"seed={seed}"), 6)
        for method in ("fedavg", "fairdual")
        for seed in (1, 2)
    ]
    write_report([single.path], folder / "single.html")
    write_report([private.path], folder / "private.html")
    write_report([run.path for run in several], folder / "several.html")
    return folder


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("name", ["single", "private", "several"])
def test_every_figure_is_drawn_without_a_word_on_the_console(browser, pages, name, scheme, scripts):
    context = browser.new_context(
        color_scheme=scheme, java_script_enabled=scripts, viewport={"width": 1200, "height": 900}
    )
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((pages / f"{name}.html").as_uri())
    figures = page.locator("svg")
    assert figures.count() >= 2
    for figure in figures.all():
        box = figure.bounding_box()
        assert box["width"] > 200 and box["height"] > 40
        assert figure.locator("path, rect, circle").count() > 0 and figure.locator("text").count() > 0
    assert said == [] and asked == [(pages / f"{name}.html").as_uri()]
    context.close()


def colour(page, selector: str, name: str) -> str:
    return page.evaluate("([s, n]) => getComputedStyle(document.querySelector(s))[n]", [selector, name])


def test_paper_is_dark_where_that_is_asked_for_and_lines_follow(browser, pages):
    seen = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto((pages / "single.html").as_uri())
        seen[scheme] = [colour(page, "body", "backgroundColor"), colour(page, "svg .c0", "stroke")]
        page.emulate_media(media="print")
        assert colour(page, "body", "backgroundColor") == "rgb(255, 255, 255)"
        page.close()
    assert seen["light"][0] == "rgb(255, 255, 255)" and all(a != b for a, b in zip(*seen.values(), strict=True))


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("name", ["single", "private", "several"])
def test_no_screen_is_too_narrow(browser, pages, name, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto((pages / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_the_promise_fits_on_one_sheet_of_paper(browser, pages):
    """A4 less its margins, 180 by 269 mm, at 96 pixels an inch."""
    page = browser.new_page(viewport={"width": 680, "height": 1016})
    page.goto((pages / "private.html").as_uri())
    page.emulate_media(media="print")
    assert page.locator("#privacy").bounding_box()["height"] <= 1016
    page.close()

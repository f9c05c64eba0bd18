"""The page in Chromium. Oracles: the API, called by `Client`; axe-core; console and network."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from elmore.server.client import Client

BYTES = ["BOW", "63", "61", "66", "c3", "a9", "EOW"]
PANELS = ["context", "neighbors", "mix", "tasks", "inside"]
Page = Any
NewPage = Callable[..., Page]


def settled(page: Page) -> None:
    """Wait until no panel computes."""
    page.wait_for_function(
        "() => document.querySelector('.result') && !document.querySelector('.stale')"
        " && document.querySelector('.result').children.length"
    )


def numbers(page: Page, selector: str) -> list[float]:
    return [float(text) for text in page.locator(selector).all_inner_texts()]


def test_context_compares_two_words_by_layer(new_page: NewPage, address: str) -> None:
    page = new_page("#context")
    settled(page)
    page.get_by_label("First sentence", exact=True).fill("He sat by the bank.")
    page.get_by_label("Second sentence", exact=True).fill("The bank raised its rates.")
    for picker in page.locator(".picker").all():
        picker.get_by_role("button", name="bank", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.heat tbody tr').length === 6")
    page.wait_for_timeout(300)
    settled(page)
    expected = Client(address).similarity("He sat by the [bank].", "The [bank] raised its rates.")
    assert numbers(page, ".bars .number") == pytest.approx(expected, abs=1e-3)
    assert page.locator(".heat tbody td.picked").inner_text() == f"{expected[2]:.2f}"
    page.get_by_label("Layer 0: the word alone").check()
    assert page.locator(".heat tbody td.picked").inner_text() == "1.00"


def test_neighbors_are_listed_and_mapped(new_page: NewPage, address: str) -> None:
    page = new_page("#neighbors")
    settled(page)  # the view of the first example
    with page.expect_response("**/v1/neighbors"):
        page.get_by_role("button", name="play (sport)").click()
    page.wait_for_selector("svg.map")
    page.wait_for_function("() => document.querySelectorAll('ol.neighbors li').length === 16")
    settled(page)
    query = "The coach drew up a [play] with nine seconds left."
    expected = [n["similarity"] for n in Client(address).neighbors(query, k=8)]
    assert numbers(page, "ol.neighbors >> nth=0 >> .number") == pytest.approx(expected, abs=1e-3)
    assert set(page.locator("ol.neighbors >> nth=1 >> mark").all_inner_texts()) == {"play"}
    point = page.locator(".point:not(.query)").nth(3)
    point.hover(force=True)
    assert "play" in page.locator(".caption mark").inner_text().lower()
    before = page.locator(".caption").inner_text()
    page.locator("svg.map").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".caption").inner_text() != before


def test_mix_with_all_weight_on_layer_0_ignores_the_context(new_page: NewPage) -> None:
    page = new_page("#mix")
    page.wait_for_selector("ol.neighbors")
    page.get_by_role("button", name="Only layer 0").click()
    found = "[...document.querySelectorAll('ol.neighbors .number')]"
    page.wait_for_function(f"() => {found}.every(n => n.textContent > 0.999)")
    assert numbers(page, ".shares .number")[0] > 0.99
    length = page.locator(".result .note").inner_text()
    page.get_by_label("\u03b3").fill("2")
    changed = "old => document.querySelector('.result .note').innerText !== old"
    page.wait_for_function(changed, arg=length)
    values = [
        float(re.search(r"\d+\.\d+", text)[0])
        for text in (length, page.locator(".result .note").inner_text())
    ]
    assert values[1] == pytest.approx(2 * values[0], rel=0.01)


def test_inside_shows_bytes_filters_and_layers(new_page: NewPage) -> None:
    page = new_page("#inside")
    page.get_by_role("button", name="caf\u00e9").first.click()
    page.wait_for_function("() => document.querySelectorAll('.bytes li').length === 7")
    assert page.locator(".bytes code").all_inner_texts() == BYTES
    assert page.locator(".filters tbody tr").count() == 7
    assert page.locator("canvas.strip").count() == 3


@pytest.mark.parametrize(
    ("task", "result"),
    [
        ("Named entities", ".marked, .note"),
        ("Semantic roles", ".roles"),
        ("Coreference", ".marked, .note"),
        ("Question answering", "mark"),
        ("Entailment", ".bars"),
        ("Sentiment", ".bars"),
    ],
)
def test_every_task_shows_its_prediction(new_page: NewPage, task: str, result: str) -> None:
    page = new_page("#tasks")
    page.get_by_label(task, exact=True).check()
    settled(page)
    assert page.locator(f".result {result.replace(', ', ', .result ')}").count() >= 1
    headings = page.locator(".result h3").all_inner_texts()
    baseline = ["Without ELMo (baseline)"] if task == "Named entities" else []
    assert headings == ["With ELMo", *baseline]
    page.locator(".examples .chip").nth(1).click()
    page.wait_for_timeout(200)
    settled(page)


def test_semantic_roles_of_a_negated_verb(new_page: NewPage) -> None:
    """The page has the tokens of the model, "don" and "'t"; the task needs "do" and "n't"."""
    page = new_page("#tasks?task=srl")
    settled(page)
    page.get_by_role("textbox", name="Sentence").fill("They don't know [it], he said.")
    page.get_by_role("button", name="know", exact=True).wait_for()
    settled(page)
    with page.expect_request("**/v1/tasks/*") as request:
        page.get_by_role("button", name="know", exact=True).click()
    assert request.value.post_data_json == {"inputs": ["They don 't [know] | it | , he said ."]}
    settled(page)
    assert "n't" in page.locator(".roles").inner_text()


def test_a_task_that_is_not_loaded_says_how_to_get_it(
    new_page: NewPage, expected: list[str]
) -> None:
    expected.append("failed:")  # requests that reloading cancels
    page = new_page()
    page.route("**/v1/models", lambda route: _without_tasks(route))
    page.goto(page.url.split("#")[0] + "#tasks?task=qa")
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    assert "elmore serve --task runs/qa" in page.locator("pre").inner_text()


def _without_tasks(route: Any) -> None:
    response = route.fetch()
    route.fulfill(response=response, json={**response.json(), "tasks": []})


def test_a_view_can_be_shared(new_page: NewPage) -> None:
    page = new_page("#context")
    settled(page)
    page.get_by_label("First sentence", exact=True).fill("100% of the [banks] & more?")
    page.locator(".picker >> nth=0 >> .word").filter(has_text="banks").click()
    page.wait_for_timeout(500)
    settled(page)
    other = new_page(page.url[page.url.index("#") :])
    settled(other)
    for selector in (".heat", ".bars"):
        assert other.locator(selector).inner_text() == page.locator(selector).inner_text()
    assert other.get_by_label("First sentence", exact=True).input_value().startswith("100% of")


def test_errors_appear_where_they_happen(new_page: NewPage, expected: list[str]) -> None:
    expected.append("the server responded with a status of 422")
    page = new_page("#neighbors")
    page.wait_for_selector("svg.map")
    busy = {"status": 422, "json": {"detail": "expected up to 4,096 tokens in all, got 9,999"}}
    page.route("**/v1/neighbors", lambda route: route.fulfill(**busy))
    page.get_by_role("button", name="bank (river)").click()
    page.wait_for_selector(".status.error")
    assert page.locator(".status.error").all_inner_texts() == [busy["json"]["detail"]]
    assert page.locator("svg.map").count() == 1


def test_tabs_and_words_work_with_the_keyboard(new_page: NewPage) -> None:
    page = new_page("#context")
    settled(page)
    page.locator("[role=tab][aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#panel[aria-labelledby=tab-neighbors]")
    assert page.locator(":focus").inner_text() == "Neighbors"
    assert page.url.endswith("#neighbors") or "#neighbors?" in page.url
    page.wait_for_selector(".word")
    page.locator(".word").nth(0).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator(".word").nth(1).get_attribute("aria-pressed") == "true"
    page.go_back()
    page.wait_for_selector("#panel[aria-labelledby=tab-context]")


def test_browsers_in_korean_get_korean(new_page: NewPage) -> None:
    page = new_page(locale="ko-KR")
    settled(page)
    assert page.locator("html").get_attribute("lang") == "ko"
    assert page.locator("[role=tab]").all_inner_texts()[0] == "\ubb38\ub9e5"
    page.locator("#language").click()
    assert page.locator("[role=tab]").all_inner_texts()[0] == "Context"


def test_browsers_in_korean_get_the_korean_model(new_page: NewPage) -> None:
    """Oracle: 말을 in a sentence about riding is nearest to 말을 in sentences about horses."""
    page = new_page("#neighbors", locale="ko-KR")
    settled(page)
    assert page.locator("#model").input_value() == "ko"
    nearest = page.locator(".neighbors").first.locator("li").first
    assert "말을 타고" in nearest.inner_text()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_panel_has_accessibility_problems_or_overflows(
    new_page: NewPage, width: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for panel in PANELS:
        page = new_page(f"#{panel}", width=width, scheme=scheme)
        settled(page)
        if panel == "neighbors":
            page.wait_for_selector("svg.map")
            page.locator("summary").click()
        found = axe.run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width

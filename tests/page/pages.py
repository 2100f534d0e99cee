"""What every page must keep: tags that close, nothing from elsewhere, figures that can be read out."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_APART = {"td", "th", "li", "dt", "dd", "p", "h1", "h2", "h3", "caption", "text", "title", "desc"}
VOID = {"meta", "br", "hr", "img", "link", "input", "col"}


class Page(HTMLParser):
    """Attributes: tags: each with its attributes; text: outside styles; figures: by number, titles and descriptions."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.figures: list[dict[str, str]] = []
        self.text, self._open = "", []
        self.source = text
        self.feed(text)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice: {names}"
        self.tags.append((tag, dict(attributes)))
        if tag in _APART:
            self.text += " "
        if tag == "svg":
            self.figures.append({})
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data):
        if "style" not in self._open:
            self.text += data
        if "svg" in self._open and self._open[-1] in ("title", "desc") and self._open[-2] == "svg":
            self.figures[-1][self._open[-1]] = data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def check(text: str) -> Page:
    """Raises AssertionError for a page that a browser would have to mend, or that needs anything from elsewhere."""
    assert text.startswith("<!DOCTYPE html>") and len(text.encode()) < 4_000_000
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "iframe", "img", "link", "object", "base", "form"} & set(tags)
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), f"<{tag} {name}>"
            assert name not in ("src", "href", "xlink:href") or (value or "").startswith("#"), f"<{tag} {name}={value}>"
    assert not re.search(r"@import|url\(|https?://", text)
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)
    wanted = [attributes["href"][1:] for _, attributes in page.tags if attributes.get("href")]
    wanted += [name for _, own in page.tags for name in (own.get("aria-labelledby") or "").split()]
    assert wanted and set(wanted) <= set(identifiers)
    for figure in page.figures:
        assert figure.get("title", "").strip() and len(figure.get("desc", "")) > 15, figure
    assert tags.count("h1") == 1 and tags.count("main") == 1
    return page

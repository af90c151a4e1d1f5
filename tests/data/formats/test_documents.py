"""Folders of documents: cut on paragraph bounds, with headings as titles."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from colabel.data import check, load_dataset
from colabel.data.formats.documents import OVERLAP, WORDS, Paragraph, cut


def test_text_markdown_and_html(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep er").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "x.txt").write_text("not read")
    (folder / "a.txt").write_text("One\ntwo.\n\nThree.\n")
    (folder / "b.md").write_text("Before.\n# Caves #\nIn *ice*.\n\nAnd rock.\n## Fjords\nBy the sea.\n")
    (folder / "deep er" / "c.html").write_text(
        "<html><head><title>Page</title><style>p{}</style></head><body><h1>Sum&shy;mer</h1><p>Long <b>days</b></p>"
        "<script>x()</script><ul><li>sun<li>sea</ul></body></html>"
    )
    passages = list(load_dataset(folder).passages)
    assert [(passage.id, passage.title, passage.text) for passage in passages] == [
        ("a.txt#1", "a.txt", "One two. Three."),
        ("b.md#1", "b.md", "Before."),
        ("b.md#2", "b.md: Caves", "In *ice*. And rock."),
        ("b.md#3", "b.md: Fjords", "By the sea."),
        ("deep%20er/c.html#1", "deep er/c.html: Sum\xadmer", "Long days sun sea"),
    ]
    assert passages[-1].metadata == {"file": "deep er/c.html"}
    assert check(str(folder)).ok


@given(st.lists(st.tuples(st.sampled_from(["", "h"]), st.integers(1, 200)), max_size=12))
def test_cutting_keeps_every_paragraph_in_order(sizes: list[tuple[str, int]]) -> None:
    given_ = [
        Paragraph(heading, " ".join([f"w{number}"] * size), number) for number, (heading, size) in enumerate(sizes)
    ]
    parts = list(cut(iter(given_)))
    seen = list(dict.fromkeys(word for part in parts for word in part.text.split()))
    assert seen == [f"w{number}" for number in range(len(sizes))]
    for part in parts:
        words = part.text.split()
        assert len(words) <= max(WORDS, OVERLAP + max(words.count(word) for word in words))

"""The registry of systems: one entry holds everything that is asked of a system."""

from __future__ import annotations

import pytest

from colabel.errors import SettingsError
from colabel.settings import CollectiveSettings, DataSettings, Recipe, StudySettings
from colabel.systems import REGISTRY, SLUGS, default_slugs, parse_system, repeated_in, student_of, systems_of

RECIPE = Recipe(data=DataSettings(source="x"))


def test_every_slug_names_one_system() -> None:
    slugs = [slug.replace("-B", "-0.25") for slug in SLUGS]
    found = [parse_system(slug) for slug in slugs]
    assert [system.slug for system in found] == slugs
    assert len({system.title for system in found}) == len(found)
    assert all(system.about and system.family == entry.slug for system, entry in zip(found, REGISTRY, strict=True))


def test_a_family_has_members_by_beta() -> None:
    assert parse_system("collective-0.50").slug == "collective-0.5"
    assert parse_system("collective-0.25").title == "collective self-KD (β = 0.25)"
    tuned = parse_system("collective-tuned")
    assert (tuned.beta, tuned.tuned) == (None, True)
    found = tuned.with_beta(0.5)
    assert (found.slug, found.made_as, found.title) == (
        "collective-tuned",
        "collective-0.5",
        "collective self-KD (β = 0.5, tuned)",
    )
    assert parse_system("colbert-prf-rerank-1").rerank


@pytest.mark.parametrize("wrong", ["collective", "collective-x", "colbert-prf", "bm26", "bm25-1", ""])
def test_an_unknown_slug_is_refused(wrong: str) -> None:
    with pytest.raises(SettingsError, match="colbert-prf-rerank-B"):
        parse_system(wrong)


def test_needs_decide_what_a_system_is_made_from() -> None:
    theta = {slug for slug in default_slugs() if "theta" in parse_system(slug).needs}
    assert theta == set(default_slugs()) - {"bm25", "zero-shot"}
    paper = parse_system("ce3-kd-paper")
    assert paper.from_plain
    assert paper.cross_encoder_count(RECIPE) == len(RECIPE.cross_encoder.models)
    assert parse_system("mixed").cross_encoder_count(RECIPE) == 1
    assert parse_system("colbert-hn").cross_encoder_count(RECIPE) == 0


def test_a_study_without_systems_has_the_default_ones() -> None:
    assert [system.slug for system in systems_of(RECIPE)] == list(default_slugs())
    assert not any(system.rerank for system in systems_of(RECIPE))
    assert "collective-0.5" in repeated_in(RECIPE)
    named = Recipe(data=RECIPE.data, study=StudySettings(systems=("bm25", "colbert-prf-1.0"), repeated=("mixed",)))
    assert [system.slug for system in systems_of(named)] == ["bm25", "colbert-prf-1"]
    assert repeated_in(named) == {"mixed"}


def test_every_teacher_has_a_student() -> None:
    names = ("hard", "uniform", "self", "cross-encoder", "ensemble", "scores", "mixed")
    found = [student_of(name, RECIPE).slug for name in names]
    assert found == ["colbert-hn", "smoothing", "self-kd", "ce-kd", "ce3-kd", "scores-kd", "mixed"]
    recipe = Recipe(data=RECIPE.data, collective=CollectiveSettings(beta=1.0))
    assert student_of("collective", recipe).slug == "collective-1"

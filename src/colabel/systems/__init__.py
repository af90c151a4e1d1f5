"""The systems that a study compares."""

from colabel.systems.registry import (
    LESSONS,
    OWN,
    REGISTRY,
    SEEDLESS,
    SLUGS,
    TEACHERS,
    System,
    collective_slug,
    default_slugs,
    named_teacher,
    parse_system,
    repeated_in,
    student_of,
    systems_of,
)

__all__ = [
    "LESSONS",
    "OWN",
    "REGISTRY",
    "SEEDLESS",
    "SLUGS",
    "TEACHERS",
    "System",
    "collective_slug",
    "default_slugs",
    "named_teacher",
    "parse_system",
    "repeated_in",
    "student_of",
    "systems_of",
]

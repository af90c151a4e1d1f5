"""The systems that a study compares."""

from colabel.systems.registry import (
    DEFAULT_LESSON,
    LESSONS,
    OWN,
    REGISTRY,
    SLUGS,
    TEACHERS,
    System,
    collective_slug,
    default_slugs,
    for_student,
    named_teacher,
    parse_system,
    repeated_in,
    student_of,
    systems_of,
)

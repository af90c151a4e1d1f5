"""Teachers: one file each, all scoring pairs for the same label artefact."""

from colabel.teachers.base import Teacher
from colabel.teachers.collective import CollectiveTeacher
from colabel.teachers.cross_encoder import CrossEncoderTeacher
from colabel.teachers.ensemble import MeanTeacher
from colabel.teachers.make import TEACHERS, TeacherChoice, make_teacher
from colabel.teachers.mixed import MixedTeacher
from colabel.teachers.score_file import ScoreFileTeacher, scores_file
from colabel.teachers.self_distillation import SelfTeacher
from colabel.teachers.uniform import UniformTeacher

__all__ = [
    "TEACHERS",
    "CollectiveTeacher",
    "CrossEncoderTeacher",
    "MeanTeacher",
    "MixedTeacher",
    "ScoreFileTeacher",
    "SelfTeacher",
    "Teacher",
    "TeacherChoice",
    "UniformTeacher",
    "make_teacher",
    "scores_file",
]

"""Teachers: each scores (query, passage) pairs, for the label artefact and for the steps of a student."""

from colabel.teachers.collective import CollectiveTeacher, SelfTeacher
from colabel.teachers.combined import MeanTeacher, MixedTeacher
from colabel.teachers.cross_encoder import CrossEncoderTeacher
from colabel.teachers.protocol import Teacher
from colabel.teachers.score_file import ScoreFileTeacher
from colabel.teachers.stored import DrawnTeacher, StoredTeacher

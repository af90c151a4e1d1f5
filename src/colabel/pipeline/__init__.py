"""The whole method, stage after stage."""

from colabel.pipeline.demo import DemoResult, demo
from colabel.pipeline.folder import Found, Run, open_run
from colabel.pipeline.run import RunResult, distil_student, run, train
from colabel.pipeline.stages import Layout, Stages, choose_engine
from colabel.pipeline.study import Study, plan_study, study
from colabel.pipeline.transfer import transfer

__all__ = [
    "DemoResult",
    "Found",
    "Layout",
    "Run",
    "RunResult",
    "Stages",
    "Study",
    "choose_engine",
    "demo",
    "distil_student",
    "open_run",
    "plan_study",
    "run",
    "study",
    "train",
    "transfer",
]

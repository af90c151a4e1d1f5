"""The whole method, stage after stage."""

from colabel.pipeline.chain import Chain
from colabel.pipeline.comparison import plan_study, study
from colabel.pipeline.engines import choose_engine
from colabel.pipeline.method import RunResult, demo, run
from colabel.pipeline.systems import SYSTEMS, System, collective_slug, parse_system
from colabel.pipeline.workbench import Workbench

__all__ = [
    "SYSTEMS",
    "Chain",
    "RunResult",
    "System",
    "Workbench",
    "choose_engine",
    "collective_slug",
    "demo",
    "parse_system",
    "plan_study",
    "run",
    "study",
]

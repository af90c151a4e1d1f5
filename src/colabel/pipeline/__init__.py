"""The whole method, stage after stage."""

from colabel.pipeline.chain import Chain
from colabel.pipeline.changes import changed_settings
from colabel.pipeline.comparison import plan_study, study
from colabel.pipeline.engines import choose_engine
from colabel.pipeline.method import RunResult, run
from colabel.pipeline.showcase import DemoResult, demo
from colabel.pipeline.systems import SYSTEMS, System, collective_slug, parse_system
from colabel.pipeline.transferring import transfer
from colabel.pipeline.workbench import Workbench

__all__ = [
    "SYSTEMS",
    "Chain",
    "DemoResult",
    "RunResult",
    "System",
    "Workbench",
    "changed_settings",
    "choose_engine",
    "collective_slug",
    "demo",
    "parse_system",
    "plan_study",
    "run",
    "study",
    "transfer",
]

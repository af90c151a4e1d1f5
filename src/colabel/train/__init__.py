"""Training: the teacher θ, and every student."""

from colabel.train.card import describe_collective
from colabel.train.cross_encoder import train_cross_encoder
from colabel.train.evaluator import DevPool, dev_pool
from colabel.train.export import export_pylate
from colabel.train.groups import DrawnPairs, Groups, Mining, draw_groups
from colabel.train.pool import Pool, pool_from_ranking
from colabel.train.processes import is_main_process, main_process_first
from colabel.train.reranking import RerankQuality, rerank_quality
from colabel.train.targets import AskedTeacher, DrawnScores, HardLabels, StoredScores, Target
from colabel.train.trainer import TrainedModel, distil, groups_for, open_model, train_teacher

__all__ = [
    "AskedTeacher",
    "DevPool",
    "DrawnPairs",
    "DrawnScores",
    "Groups",
    "HardLabels",
    "Mining",
    "Pool",
    "RerankQuality",
    "StoredScores",
    "Target",
    "TrainedModel",
    "describe_collective",
    "dev_pool",
    "distil",
    "draw_groups",
    "export_pylate",
    "groups_for",
    "is_main_process",
    "main_process_first",
    "open_model",
    "pool_from_ranking",
    "rerank_quality",
    "train_cross_encoder",
    "train_teacher",
]

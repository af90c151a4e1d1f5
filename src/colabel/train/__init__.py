"""Training: θ, students of any teacher, and cross-encoders."""

from colabel.train.callbacks import read_log
from colabel.train.cross_encoders import share_of_layers, split_layers, train_cross_encoder
from colabel.train.dev import EVALUATE_DEPTH, DevSet, RerankQuality, dev_set, rerank_quality
from colabel.train.distributed import is_main_process, main_process_first
from colabel.train.exports import describe_collective, export_pylate
from colabel.train.groups import Candidates, DrawnPairs, Groups, candidates_from_ranking, draw_groups, groups_for
from colabel.train.loop import check_batch, check_device, choose_precision
from colabel.train.models import TrainedModel, distil, open_model, train_theta

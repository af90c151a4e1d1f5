"""Settings, section by section, and the TOML recipe that holds them."""

from colabel.settings.tables import (
    COLUMN_NAMES,
    CollectiveSettings,
    ComputeSettings,
    CrossEncoderSettings,
    DataSettings,
    DistilSettings,
    EncoderSettings,
    FitSettings,
    IndexSettings,
    LabelSettings,
    PseudoSettings,
    QuerySideSettings,
    RankSettings,
    Recipe,
    StudySettings,
    TrainSettings,
)

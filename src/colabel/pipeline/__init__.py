"""The whole method, stage after stage: :mod:`colabel.pipeline.run` reads like the paper."""

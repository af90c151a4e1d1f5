"""Text → token vectors with aligned token ids."""

from colabel.encode.colbert import open_checkpoint, open_encoder, prepare_encoder
from colabel.encode.encoder import EncodedPassages, EncodedQueries, Encoder, encode_queries_checked
from colabel.encode.query_store import QueryStore, build_query_store

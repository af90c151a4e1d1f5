"""The web app over a run: search it, review suspected labels, and see how far the labels are."""

from colabel.serve.app import create_app, serve

__all__ = ["create_app", "serve"]

"""``python -m colabel``."""

from colabel.cli import main

main()

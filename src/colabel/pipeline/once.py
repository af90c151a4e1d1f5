"""Stages that are made when they are first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)
_FAILED = "_failed_stages"


class MadeOnce(cached_property[T_co]):
    """A cached property that fails once: who asks again gets the same error, and no second attempt of an hour.

    >>> class Chain:
    ...     attempts = 0
    ...     @MadeOnce
    ...     def theta(self) -> str:
    ...         self.attempts += 1
    ...         raise ValueError("the loss is not finite")
    >>> chain = Chain()
    >>> for _ in range(2):
    ...     try:
    ...         chain.theta
    ...     except ValueError as error:
    ...         print(error, chain.attempts)
    the loss is not finite 1
    the loss is not finite 1
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T_co: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Any:
        """The stage of an instance."""
        if instance is None:
            return self
        failed: dict[str | None, Exception] = instance.__dict__.setdefault(_FAILED, {})
        if self.attrname in failed:
            raise failed[self.attrname]
        try:
            return super().__get__(instance, owner)
        except Exception as error:
            failed[self.attrname] = error
            raise

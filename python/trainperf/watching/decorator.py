"""A watch as a decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any


def decorate(function: Any, watch: Callable[[], AbstractContextManager[Any]]) -> Any:
    """A watch per call: for a coroutine or a generator, from its start to its end."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with watch():
                return await function(*args, **kwargs)

        return coroutine
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            with watch():
                inner = function(*args, **kwargs)
                try:
                    item = await inner.__anext__()
                    while True:
                        try:
                            sent = yield item
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            item = await inner.athrow(error)
                        else:
                            item = await inner.asend(sent)
                except StopAsyncIteration:
                    return
                finally:
                    await inner.aclose()

        return asynchronous
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with watch():
                return (yield from function(*args, **kwargs))

        return generator

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with watch():
            return function(*args, **kwargs)

    return plain

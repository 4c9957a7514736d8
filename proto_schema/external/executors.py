"""Work on any executor of `concurrent.futures`: threads, processes, Dask, MPI.

A job never raises where it runs: it returns its error. So what a future raises says that its worker was lost, and the
job is done again: jobs give the same result however often they are done. An executor that is broken is made anew if
this module made it; otherwise what is left is done by this process.
"""

from __future__ import annotations

import importlib
import logging
import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeAlias

from proto_schema.wire.records import dataclass

ExecutorLike: TypeAlias = Executor | str | None
NAMES = "threads, threads:N, processes, processes:N, dask://HOST:PORT or mpi"
_AHEAD = 256  # jobs that are handed over and not done
_TRIES = 3
_log = logging.getLogger("proto_schema")


@dataclass(frozen=True)
class Job:
    """A function of a module with arguments that are made when it is handed over; `name` is for messages."""

    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    name: str


def check_executor(asked: ExecutorLike) -> None:
    """ValueError for what is neither an executor nor the name of one."""
    if isinstance(asked, str):
        _count_of(asked)
    elif asked is not None and not callable(getattr(asked, "submit", None)):
        raise ValueError(f"executor={asked!r} is no executor of concurrent.futures; give one, or one of {NAMES}")


@contextmanager
def opened_workers(asked: ExecutorLike) -> Iterator[Workers | None]:
    """The workers that are asked for, for the time of the block; an executor of the caller's stays open.

    ValueError for an unknown name, ImportError where what it needs is not installed.
    """
    check_executor(asked)
    if asked is None:
        yield None
        return
    with Workers(asked) as made:
        yield made


class Workers:
    """An executor; a context, which ends the executor if it made it."""

    def __init__(self, asked: Executor | str) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._asked = asked
        self._open = ExitStack()
        self._executor = None if isinstance(asked, str) else asked
        self.threads = isinstance(asked, ThreadPoolExecutor) or (isinstance(asked, str) and asked[:7] == "threads")

    def __enter__(self) -> Workers:
        self._begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def take(self, reach: str) -> bool:
        """Whether they can do what may be done "anywhere", by "threads" of this process, or "here" only."""
        return reach == "anywhere" or (reach == "threads" and self.threads)

    def run(
        self, jobs: Sequence[Job], done: Callable[[int, Any], None], meanwhile: Sequence[Callable[[], None]] = ()
    ) -> None:
        """Does all jobs; `done` hears the number and the result of each. `meanwhile` is done by this thread.

        Raises the first error of a job, and OSError where workers are lost and nothing gets done any more. Nothing runs
        when it returns or raises.
        """
        from concurrent.futures import FIRST_COMPLETED, CancelledError, wait

        waiting, own, lost = deque(range(len(jobs))), deque(meanwhile), Counter[int]()
        running: dict[Future[Any], int] = {}
        try:
            while waiting or running or own:
                while waiting and len(running) < _AHEAD and self._hand_over(jobs[waiting[0]], waiting[0], running):
                    waiting.popleft()
                if own:
                    own.popleft()()
                    continue
                if not running:
                    index = waiting.popleft()
                    done(index, _result(_attempt(jobs[index].function, *jobs[index].arguments())))
                    continue
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    index = running.pop(future)
                    try:
                        outcome = future.result()
                    except Exception as error:  # of the executor: a worker is gone
                        lost[index] += 1
                        self._note_loss(jobs[index], error, lost[index])
                        waiting.append(index)
                        continue
                    done(index, _result(outcome))
                    lost.clear()
        finally:
            for future in running:
                future.cancel()
            wait(running)
            for future, index in running.items():  # after an error: what is done need not be done again
                with suppress(Exception, CancelledError):
                    done(index, _result(future.result()))

    def _hand_over(self, job: Job, index: int, running: dict[Future[Any], int]) -> bool:
        """Whether an executor has the job now."""
        from concurrent.futures import BrokenExecutor

        for _ in range(2):
            if self._executor is None:
                return False
            arguments = job.arguments()
            try:
                running[self._executor.submit(_attempt, job.function, *arguments)] = index
                return True
            except (BrokenExecutor, RuntimeError) as error:  # a pool of processes of which one died; a closed one
                if running:
                    return False  # the others of it come back first
                self._renew(error)
        return False

    def _note_loss(self, job: Job, error: Exception, times: int) -> None:
        if times >= _TRIES:
            raise OSError(
                f"{job.name}: {times} workers were lost over it ({type(error).__name__}): look at their logs, and at "
                "their memory"
            ) from None
        _log.warning("%s: its worker was lost (%s); it is done again", job.name, type(error).__name__)

    def _renew(self, error: Exception) -> None:
        with suppress(Exception):
            self._open.close()
        self._executor = None
        if not isinstance(self._asked, str):
            _log.warning("the executor is closed (%s): this process does what is left", type(error).__name__)
            return
        self._begin()

    def _begin(self) -> None:
        if isinstance(self._asked, str):
            self._executor = _made(self._asked, self._open)


def _attempt(function: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
    """(whether it went well, its result or its error)."""
    try:
        return True, function(*arguments)
    except Exception as error:
        try:
            return False, pickle.loads(pickle.dumps(error))  # as another process gets it
        except Exception:
            return False, OSError(f"{type(error).__name__}: {error}")


def _result(outcome: tuple[bool, Any]) -> Any:
    fine, value = outcome
    if not fine:
        raise value
    return value


def _count_of(asked: str) -> int | None:
    """The number of workers in the name of an executor, None where it says none. ValueError for another name."""
    kind, colon, count = asked.partition(":")
    if kind in ("threads", "processes") and (not colon or (count.isascii() and count.isdigit() and int(count))):
        return int(count) if colon else None
    if asked == "mpi" or (kind == "dask" and count.startswith("//") and len(count) > 2):
        return None
    raise ValueError(f"there is no executor {asked!r}; it can be {NAMES}")


def _made(asked: str, open_: ExitStack) -> Executor:
    from proto_schema.external.threads import cores

    kind, count = asked.partition(":")[0], _count_of(asked) or cores()
    if kind == "threads":
        from concurrent.futures import ThreadPoolExecutor

        return open_.enter_context(ThreadPoolExecutor(count, thread_name_prefix="proto_schema"))
    if kind == "processes":
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        return open_.enter_context(ProcessPoolExecutor(count, get_context("spawn")))
    package = {"dask": "distributed", "mpi": "mpi4py.futures"}[kind]
    try:
        module: Any = importlib.import_module(package)
    except ImportError:
        raise ImportError(f"executor {asked!r} needs the package {package.partition('.')[0]}: install it") from None
    if kind == "mpi":
        return open_.enter_context(module.MPIPoolExecutor())  # type: ignore[no-any-return]
    client = open_.enter_context(module.Client("tcp" + asked[len("dask") :]))
    return open_.enter_context(client.get_executor())  # type: ignore[no-any-return]

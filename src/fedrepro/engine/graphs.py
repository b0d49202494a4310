"""Steps on a GPU recorded as CUDA graphs: one launch for a whole gradient.

A local step of a small model is some 35 kernels of a few microseconds, which Python launches one by
one at 5 to 65 microseconds each: the GPU waits. A recorded step is one launch and computes the same
bits. https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs

A graph repeats kernels on fixed memory and runs no Python. So whatever Python read while it was
recorded must be the same at every replay: tensors are copied into the recorded ones, and the fields
of the context that a hook read are compared. A hook that cannot be recorded runs as it is.
"""

import gc
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.net import Net
from fedrepro.engine.tree import Tree

# (context, what stays fixed during a client's training, mini-batch) -> result
Step = Callable[[Context, Tree, Tree], Tree]

AFTER = 8  # eager calls before a step is recorded: they also warm up what CUDA starts on first use
WORTHWHILE = 30  # replays per recording; below, recording again and again would only cost time
PATIENCE = 4  # recordings that may be replayed less often
MOST = 256  # recordings of a step, as none is given up before the run ends


class Recorder(Protocol):
    """Records what a device computes, to repeat it without Python."""

    def beside(self) -> "Recorder":
        """One on another stream of the same device."""

    def begin(self) -> None:
        """Let its stream wait for what has been launched on the current one."""

    def inside(self) -> AbstractContextManager[None]:
        """A context on its stream."""

    def end(self) -> None:
        """Let the current stream wait for what has been launched on its own."""

    def waits(self, function: Callable[[], Tree]) -> tuple[Tree, str]:
        """Call it, and tell where the host waited for the device, which no recording can; or ""."""

    def record(self, function: Callable[[], Tree]) -> tuple[Tree, Callable[[], None]]:
        """The memory of its result, not computed yet, and what computes it there.

        Raises:
            RuntimeError: if it cannot be recorded.
        """


@dataclass
class _Recording:
    result: Tree
    replay: Callable[[], None]
    read: Mapping[str, Any]
    numbers: list[Tensor]
    replays: int = 0


class _Opened(NamedTuple):
    """A step of one client: the arguments of :meth:`Graphs.opened`."""

    step: Step
    hook: Callable[..., Any]
    ctx: Context
    held: Tree
    learn: Step | None

    def __call__(self, batch: Tree) -> Tree:
        return self.step(self.ctx, self.held, batch)


@dataclass
class _Site:
    """One step, for one shape of its arguments."""

    batch: Tree  # the memory that mini-batches are copied to
    leaves: list[Tensor]
    calls: int = 0
    recording: _Recording | None = None
    eager: bool = False
    recordings: int = 0
    vain: int = 0  # those of them that were replayed too rarely
    read: Mapping[str, Any] = field(default_factory=dict)


class Graphs:
    """The recordings of a run, on one stream of one device.

    Attributes:
        recorder: of the device.
        note: gets one line about each hook that is not recorded, with the reason.
    """

    def __init__(self, recorder: Recorder, note: Callable[[str], None] = lambda line: None) -> None:
        self.recorder, self.note = recorder, note
        self._sites: dict[Any, _Site] = {}
        self._fixed: dict[Any, tuple[Tree, list[tuple[Tensor, int]]]] = {}
        self._graphs: list[object] = []  # dropping one would free memory that others still use
        self._alive: dict[Any, object] = {}  # whatever keys name by its id
        self._noted: set[str] = set()

    @contextmanager
    def stream(self) -> Iterator[None]:
        """The context in which a client trains, in one order with what comes before and after."""
        self.recorder.begin()
        try:
            with self.recorder.inside():
                yield
        finally:
            self.recorder.end()

    def beside(self) -> "Graphs":
        """Recordings on another stream of the same device, with the same notes."""
        return Graphs(self.recorder.beside(), self._say_line)

    def fixed(self, what: Tree, name: str = "", changes: bool = False) -> Tree:
        """The same values in memory that stays where it is for all trees of this shape.

        Args:
            name: of a set of memory, for trees that are used at the same time.
            changes: whether steps change it in place; then it is copied in any case.
        """
        key = (name, tree.signature(what))
        if key not in self._fixed:
            self._fixed[key] = tree.apply(_like, what), []
        there, before = self._fixed[key]
        leaves = tree.leaves(what)
        now = [(leaf, leaf._version) for leaf in leaves]
        if changes or not _same(now, before):
            tree.fill(tree.leaves(there), leaves)
            self._fixed[key] = there, now
        return there

    def opened(
        self,
        step: Step,
        hook: Callable[..., Any],
        ctx: Context,
        held: Tree,
        identity: tuple[object, ...] = (),
        learn: Step | None = None,
    ) -> Callable[[Tree], Tree]:
        """``step`` of one client as a function of its mini-batch.

        Its result is only valid until the next call.

        Args:
            hook: the method's function that ``step`` calls; one that cannot be recorded is called.
            held: what stays fixed for this client, made by :meth:`fixed`.
            identity: objects whose memory ``step`` also uses, which live as long as the run.
            learn: does what ``step`` does without its effects, for a context that notes what is
                read: a compiled ``step`` would be compiled again for it. None: ``step`` itself.
        """
        plain = inspect.unwrap(hook)
        owner, code = getattr(plain, "__self__", None), getattr(plain, "__func__", plain)
        if why := _unfit(plain):
            self._say(plain, why)
            return partial(step, ctx, held)
        eager = _Opened(step, plain, ctx, held, learn)
        named = (owner, code, held, ctx.net, *identity)
        common = (*map(id, named), *_modes(ctx))
        self._alive.setdefault(common, named)
        sites = self._sites
        ready: dict[object, tuple[_Site, _Recording]] = {}  # by the shape of a mini-batch

        def called(batch: Tree) -> Tree:
            shape = tree.signature(batch)
            if shape not in ready:
                site = sites.get((common, shape)) or sites.setdefault((common, shape), _room(batch))
                outcome = self._recorded(site, eager, batch)
                if isinstance(outcome, dict):
                    return outcome
                ready[shape] = site, outcome
            site, recording = ready[shape]
            tree.fill(site.leaves, tree.leaves(batch))
            recording.replay()
            recording.replays += 1
            return recording.result

        return called

    def _recorded(self, site: _Site, eager: _Opened, batch: Tree) -> _Recording | Tree:
        """The recording to replay; until there is one, the result."""
        step, hook, ctx, held, learn = eager
        site.calls += 1
        if site.eager or site.calls < AFTER:
            return eager(batch)
        if site.calls == AFTER:
            return self._tried(site, eager, batch)
        known = site.recording
        # A number on the CPU is not read from memory at a replay.
        numbers = [leaf for leaf in tree.leaves(held) if leaf.device != ctx.net.device]
        if known and (changed := _changed(known, ctx, numbers)):
            site.vain = site.vain + 1 if known.replays < WORTHWHILE else 0
            if site.vain >= PATIENCE or site.recordings >= MOST:
                site.eager, site.recording = True, None
                self._say(hook, f"reads {changed}, which changes")
                return eager(batch)
            known = None
        if known is None:
            # The graph is kept, its results are not: memory of one may be used by the next.
            site.recording = None
            seen = ctx if learn else watched(ctx)
            tree.fill(site.leaves, tree.leaves(batch))
            try:
                result, replay = self.recorder.record(lambda: step(seen, held, site.batch))
            except RuntimeError as error:
                site.eager = True
                self._say(hook, _first_line(error))
                return eager(batch)
            read = {name: getattr(ctx, name) for name in site.read} if learn else reads(seen)
            self._graphs.append(replay)
            site.recordings += 1
            known = site.recording = _Recording(
                result, replay, read, [leaf.clone() for leaf in numbers]
            )
        return known

    def _tried(self, site: _Site, eager: _Opened, batch: Tree) -> Tree:
        """The result, after a look at whether a recording could succeed."""
        if eager.learn:
            seen = watched(eager.ctx)
            eager.learn(seen, eager.held, batch)
            site.read = reads(seen)
        module = eager.ctx.net.module
        before = _plain(module)
        result, wait = self.recorder.waits(lambda: eager(batch))
        if not wait and _plain(module) != before:
            wait = "the model changes numbers of its own that are no tensors"
        if wait:
            site.eager = True
            self._say(eager.hook, wait)
        return result

    def _say(self, hook: Callable[..., Any], why: str) -> None:
        self._say_line(
            f"{getattr(hook, '__qualname__', hook)}: runs kernel by kernel on the GPU: {why}"
        )

    def _say_line(self, line: str) -> None:
        if line not in self._noted:
            self._noted.add(line)
            self.note(line)


def _room(batch: Tree) -> _Site:
    there = tree.apply(_like, batch)
    return _Site(there, tree.leaves(there))


def _like(leaf: Tensor) -> Tensor:
    return torch.empty_like(leaf, requires_grad=False)


def _same(now: list[tuple[Tensor, int]], before: list[tuple[Tensor, int]]) -> bool:
    return len(now) == len(before) and all(
        a is b and one == two for (a, one), (b, two) in zip(now, before, strict=True)
    )


class _Watched(Context):
    """A context that notes which of its fields are read."""

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name in _FIELDS:
            # A copy by `dataclasses.replace` has read every field of this one, and notes nothing.
            object.__getattribute__(self, "__dict__").get("reads", {})[name] = value
        return value


_FIELDS = frozenset(entry.name for entry in fields(Context))


def watched(ctx: Context) -> Context:
    """A copy of a context that notes what is read of it, for :func:`reads`."""
    copy = object.__new__(_Watched)
    copy.__dict__.update(vars(ctx), reads={})
    return copy


def reads(ctx: Context) -> dict[str, Any]:
    """The fields that were read of a :func:`watched` context, with their values."""
    return dict(vars(ctx)["reads"])


def _changed(known: _Recording, ctx: Context, numbers: list[Tensor]) -> str:
    """The first input that is not as it was when it was recorded, or ""."""
    for name, value in known.read.items():
        now = getattr(ctx, name)
        plain = isinstance(now, int | float | str | tuple) and not isinstance(now, Tensor)
        if now is not value and not (plain and type(now) is type(value) and now == value):
            return f"ctx.{name} (let `broadcast` send a tensor on the model's device)"
    if not all(map(torch.equal, numbers, known.numbers)):
        return "a tensor on the CPU (put it on the model's device)"
    return ""


def _modes(ctx: Context) -> Iterator[object]:
    """The further modes that decide which kernels a step launches."""
    yield ctx.mode
    yield ctx.net.module.training
    yield ctx.net.precision
    yield torch.backends.cudnn.allow_tf32


def _unfit(hook: Callable[..., Any]) -> str:
    """Why a hook may not be recorded, or ""."""
    if isinstance(hook, MethodType):
        owner = hook.__self__
        settings = getattr(type(owner), "__dataclass_params__", None)
        return "" if settings and settings.frozen else "it belongs to an object that may change"
    if not isinstance(hook, FunctionType) or hook.__closure__:
        return "it holds variables of the function around it: make it a method"
    return ""


def _plain(module: nn.Module) -> list[dict[str, object]]:
    """Numbers and texts that layers hold as attributes."""
    return [
        {
            name: value
            for name, value in vars(layer).items()
            if isinstance(value, int | float | str) and name != "training"
        }
        for layer in module.modules()
    ]


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


class OnCuda:
    """Records on one stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def beside(self) -> "OnCuda":
        return OnCuda(self.device)

    def begin(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self.device))

    @contextmanager
    def inside(self) -> Iterator[None]:
        with torch.cuda.stream(self._stream):
            yield

    def end(self) -> None:
        torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def waits(self, function: Callable[[], Tree]) -> tuple[Tree, str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = function()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits = [entry for entry in caught if "synchronizing CUDA operation" in str(entry.message)]
        for entry in caught:
            if entry not in waits:
                warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
        if not waits:
            return result, ""
        return result, f"{waits[0].filename}:{waits[0].lineno} waits for the GPU"

    def record(self, function: Callable[[], Tree]) -> tuple[Tree, Callable[[], None]]:
        graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
        gc.disable()  # freeing another stream's memory in between would spoil the recording
        try:
            graph.capture_begin(pool=self._pool)
            try:
                result = function()
            except BaseException:
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        finally:
            if collects:
                gc.enable()
        return result, graph.replay


def record_on(device: str, nets: Iterable[Net]) -> None:
    """Let the networks of a run record their steps, if it is on a GPU."""
    if device.startswith("cuda"):
        common = Graphs(OnCuda(torch.device(device)))
        for net in nets:
            net.graphs = common

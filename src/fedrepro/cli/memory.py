"""What a command says when memory runs out. Imported by every command, so it imports little."""

from collections.abc import Sequence

MORE_MEMORY = (
    "give it more (`resources: {mem_mb: ...}` of its setting), or let fewer runs or clients work "
    "at once (`--cores`, `threads` in config.yaml)"
)


def without_log(words: Sequence[str]) -> tuple[str, str | None]:
    """A command line without ``--log FILE``, and FILE."""
    kept = list(words)
    at = kept.index("--log") if "--log" in kept[:-1] else len(kept)
    log = kept[at + 1] if at < len(kept) else None
    return " ".join(kept[:at] + kept[at + 2 :]), log

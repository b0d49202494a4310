"""Google's Speech Commands; speakers are the natural clients."""

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import SpeechCommands
from fedrepro.data.fetching.archives import opened_around
from fedrepro.data.readers.content import Content, Source, Split
from fedrepro.support.errors import reading, refusal, refuse_unknown
from fedrepro.support.files import plain, read_text

LISTS = ("validation_list.txt", "testing_list.txt")
RATE = 16_000  # samples per second


def read_speech_commands(spec: SpeechCommands, source: Source) -> Content:
    """The clips of torchaudio's `training` subset, ordered by name, as int16.

    Raises:
        UserError: if the archive has another layout, or a clip is damaged.
    """
    archive = source.path / spec.archive.name
    root = opened_around(archive, source.scratch, *LISTS)
    aside = {line.strip() for name in LISTS for line in read_text(root / name).splitlines()}
    clips = [
        path
        for path in sorted(root.glob("*/*.wav"))
        if "_nohash_" in path.name and path.relative_to(root).as_posix() not in aside
    ]
    if not clips:
        raise refusal(archive, "expected WORD/SPEAKER_nohash_NUMBER.wav", code="missing")
    numbers = {name: at for at, name in enumerate(spec.class_names)}
    words = sorted({path.parent.name for path in clips})
    refuse_unknown(archive, "word", words, spec.class_names, "one of `class_names`")
    x = np.zeros((len(clips), 1, spec.samples), np.int16)
    for row, path in source.counted(clips):
        sound = _read(path, f"{archive}: {path.relative_to(root)}")[: spec.samples]
        x[row, 0, : len(sound)] = sound
    speakers = np.array([path.name.partition("_nohash_")[0] for path in clips])
    names, group = np.unique(speakers, return_inverse=True)
    return Content(
        train=Split(x, np.array([numbers[path.parent.name] for path in clips]), group),
        class_names=list(spec.class_names),
        notes={"groups": names.tolist()},
    )


def _read(path: Path, where: str) -> NDArray[np.int16]:
    with reading(where, wave.Error, EOFError, kind="sound"), wave.open(str(plain(path))) as file:
        shape = (file.getnchannels(), file.getsampwidth(), file.getframerate())
        content = file.readframes(file.getnframes())
        wanted = file.getnframes() * 2
    if shape != (1, 2, RATE) or len(content) != wanted:
        raise refusal(where, f"expected whole 16-bit sound, one channel, {RATE} a second")
    return np.frombuffer(content, "<i2")

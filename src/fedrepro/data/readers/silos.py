"""Data whose owners are the natural clients: hospitals, doctors, regions of a bank, and speakers.

Heart disease and skin lesions of hospitals; pairs of medical questions by doctor, as token ids;
Berka, loans of a Czech bank, joined from five tables; Google's Speech Commands.
"""

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import Berka, HeartDisease, Isic, QuestionPairs, SpeechCommands
from fedrepro.data.fetching.archives import lacking, opened, opened_around
from fedrepro.data.readers.content import Content, Source, Split
from fedrepro.data.readers.images import read_images
from fedrepro.data.readers.table_files import read_table
from fedrepro.support.errors import bad_value, reading, refusal, refuse_unknown
from fedrepro.support.files import plain, read_text, visible

NUMBERS = ("age", "trestbps", "chol", "thalch", "oldpeak")
# Words of the table -> UCI's codes, whose mean replaces missing values.
CODES: dict[str, dict[Any, int]] = {
    "sex": {"Female": 0, "Male": 1},
    "cp": {"typical angina": 1, "atypical angina": 2, "non-anginal": 3, "asymptomatic": 4},
    "fbs": {False: 0, True: 1},
    "restecg": {"normal": 0, "st-t abnormality": 1, "lv hypertrophy": 2},
    "exang": {False: 0, True: 1},
}
ONE_HOT = ("cp", "restecg")
CUT = ("sex", "cp", "restecg", "exang")  # the released code leaves fbs at its mean
COLUMNS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalch", "exang", "oldpeak")
BOOLEANS = {"TRUE": True, "FALSE": False, "True": True, "False": False}


def read_heart_disease(spec: HeartDisease, source: Source) -> Content:
    """The four hospitals' patients: 15 features; the label is 1 for any heart disease.

    Raises:
        UserError: if a column is missing or invalid, or the number of rows is wrong.
    """
    path = source.path / spec.file.name
    table = read_table(path, (*COLUMNS, "num"), dtype=str)
    sizes = list(spec.hospitals.values())
    if len(table) != sum(sizes):
        why = f"{len(table)} rows: expected {sum(sizes)}, those of `hospitals`"
        raise refusal(path, why, "hospitals", len(table))
    group = np.repeat(np.arange(len(sizes)), sizes)
    values = pd.DataFrame({"num": _numbers(table["num"], path)})
    for column in COLUMNS:
        words = table[column].replace(BOOLEANS) if column in ("fbs", "exang") else table[column]
        coded = words.map(CODES[column]) if column in CODES else _numbers(words, path)
        unknown = table[column][coded.isna() & table[column].notna()]
        if len(unknown):
            raise bad_value(path, column, unknown.iloc[0], "a value that UCI has")
        values[column] = coded
    if values["num"].isna().any():
        raise refusal(path, "num: expected a value in every row", "num")
    if spec.missing == "drop":
        kept = values.notna().all(axis=1).to_numpy()
        values, group = values[kept], group[kept]
    else:
        values = values.groupby(group).transform(lambda column: column.fillna(column.mean()))
        values[list(CUT)] = np.floor(values[list(CUT)])
    features = {
        (f"{column}={code}" if column in ONE_HOT else column): (
            values[column] == code if column in ONE_HOT else values[column]
        )
        for column in sorted(COLUMNS, key=lambda column: column in ONE_HOT)
        for code in (CODES[column].values() if column in ONE_HOT else (0,))
    }
    x = np.column_stack([np.asarray(column, np.float64) for column in features.values()])
    return Content(
        train=Split(x, (values["num"] > 0).to_numpy().astype(np.int64), group),
        class_names=["healthy", "heart disease"],
        notes={
            "features": list(features),
            "groups": list(spec.hospitals),
            "client_standardised": list(range(len(features))),
        },
    )


def read_isic(spec: Isic, source: Source) -> Content:
    """ISIC 2019's lesions with complete metadata, resized and cropped to a square.

    As in FLamby, a lesion's centre is the first four letters of its id, extended for HAM10000's
    lesions by the data set that its table names. FLamby keeps images without the patient's age, sex
    or the lesion's site; AAggFF's released code does not. That code also augments training images
    in every round with random crops, rotations and colours; here each image is centre-cropped once.

    Raises:
        UserError: if a table or an image is missing or damaged.
    """
    files = spec.files
    labels = read_table(source.path / files.labels.name, ("image", *spec.class_names))
    lesions = read_table(
        source.path / files.metadata.name,
        ("image", "age_approx", "anatom_site_general", "lesion_id", "sex"),
    )
    ham = read_table(source.path / files.ham.name, ("image_id", "dataset"))
    known = lesions.dropna().merge(
        ham[["image_id", "dataset"]], left_on="image", right_on="image_id", how="left"
    )
    prefix = known["lesion_id"].str[:4].replace({"BCN_": "BCN", "MSK4": "MSK"})
    known["centre"] = prefix + known["dataset"].fillna("")
    table = labels.merge(known[["image", "centre"]], on="image")
    table = table[~table["image"].isin(spec.leave_out)].reset_index(drop=True)
    centres = sorted(set(table["centre"]))
    refuse_unknown(source.path, "centre", centres, spec.centres, "one of `centres`")
    archive = source.path / files.images.name
    pictures = visible(opened(archive, source.scratch), "**/*.jpg")
    images = {path.stem: path for path in pictures}
    paths = [images.get(name, source.scratch / f"{name}.jpg") for name in table["image"]]
    return Content(
        train=Split(
            read_images(source, paths, archive, spec.side, spec.shorter),
            table[list(spec.class_names)].to_numpy().argmax(axis=1),
            table["centre"].map({name: at for at, name in enumerate(spec.centres)}).to_numpy(),
        ),
        class_names=list(spec.class_names),
        notes={"groups": list(spec.centres)},
    )


def _numbers(column: "pd.Series[Any]", path: Path) -> "pd.Series[float]":
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = column[numbers.isna() & column.notna()]
    if len(wrong):
        raise bad_value(path, str(column.name), wrong.iloc[0], "a number")
    return numbers


def read_question_pairs(spec: QuestionPairs, source: Source) -> Content:
    """Pairs as int32 [n, 2, length]: ids of word pieces, and the attention mask.

    Raises:
        UserError: if the file is damaged, or the tokenizer's vocabulary or library is missing.
    """
    path = source.path / spec.file.name
    columns = ["doctor", "first", "second", "label"]
    table = read_table(path, header=None, names=columns, index_col=False)
    if table.empty or table.isna().any(axis=None) or not table["label"].isin([0, 1]).all():
        raise refusal(path, "expected rows of doctor, question, question, 0 or 1")
    tokenizer = _tokenizer(spec)
    pairs = tokenizer.encode_batch(list(zip(table["first"], table["second"], strict=True)))
    x = np.array([[pair.ids, pair.attention_mask] for pair in pairs], np.int32)
    doctors, group = np.unique(table["doctor"].to_numpy(), return_inverse=True)
    return Content(
        train=Split(x, table["label"].to_numpy(np.int64), group),
        class_names=["different", "same"],
        notes={"groups": doctors.tolist(), "words": tokenizer.get_vocab_size()},
    )


def _tokenizer(spec: QuestionPairs) -> Any:
    words = Path(spec.tokenizer) / "vocab.txt"
    if not words.is_file():
        repair = f"put vocab.txt of distilbert-base-uncased into {spec.tokenizer}"
        why = f"{repair}, or change `tokenizer` in config/datasets.yaml"
        raise refusal(words, f"there is no such file: {why}", code="missing")
    try:
        from tokenizers import BertWordPieceTokenizer
    except ImportError:
        why = "it needs tokenizers, which is not installed: `pip install '.[text]'` in the clone"
        raise refusal(words, why, "tokenizers", code="missing") from None
    with reading(words, Exception, kind="a BERT vocabulary"):  # the library raises plain exceptions
        tokenizer = BertWordPieceTokenizer(str(words), lowercase=True)
    tokenizer.enable_truncation(spec.length)
    tokenizer.enable_padding(length=spec.length)
    return tokenizer


TABLES = {
    "loan": ("account_id", "date", "amount", "duration", "payments", "status"),
    "account": ("account_id", "district_id", "frequency", "date"),
    "district": ("A1", "A3", "A4", "A11", "A12", "A13", "A14", "A15", "A16"),
    "order": ("account_id", "amount"),
    "trans": ("account_id", "amount", "balance"),
}
BAD_LOANS = {"A": 0, "B": 1, "C": 0, "D": 1}  # B: finished, not paid; D: running, in debt
STATEMENTS = ("POPLATEK MESICNE", "POPLATEK TYDNE", "POPLATEK PO OBRATU")
FEATURES = (
    "amount", "duration", "payments", "days_between", "inhabitants", "average_salary",
    "entrepreneurs", "unemployment", "crimes", "order_amount", "transactions", "trans_amount",
    "trans_balance",
)  # fmt: skip


def read_berka(spec: Berka, source: Source) -> Content:
    """The 682 loans, without those of excluded regions: 13 numeric and 2 binary features.

    Each client standardises the numeric features; the binary ones (how often a statement is sent)
    are unchanged.

    Raises:
        UserError: if a table or a column is missing, or a value is invalid.
    """
    archive = source.path / spec.archive.name
    root = opened(archive, source.scratch)
    tables = {name: _table(archive, root, name) for name in TABLES}
    for column in ("A12", "A15"):  # two districts have no numbers of 1995: "?"
        tables["district"][column] = pd.to_numeric(tables["district"][column], errors="coerce")
    orders = tables["order"].groupby("account_id")["amount"].mean().rename("order_amount")
    moved = (
        tables["trans"]
        .groupby("account_id")
        .agg(
            transactions=("amount", "size"),
            trans_amount=("amount", "mean"),
            trans_balance=("balance", "mean"),
        )
    )
    joined = (
        tables["loan"]
        .merge(tables["account"], on="account_id", suffixes=("", "_account"))
        .merge(tables["district"], left_on="district_id", right_on="A1")
        .join(orders, on="account_id")
        .join(moved, on="account_id")
    )
    if len(joined) != len(tables["loan"]) or joined[[*orders.to_frame(), *moved]].isna().any(
        axis=None
    ):
        why = "a loan has no account, district, order or transaction"
        raise refusal(archive, why, code="damaged")
    joined["days_between"] = (
        _dates(joined["date"], archive) - _dates(joined["date_account"], archive)
    ).dt.days
    joined = joined.assign(
        unemployment=joined[["A12", "A13"]].mean(axis=1),
        crimes=joined[["A15", "A16"]].mean(axis=1),
    ).rename(columns={"A4": "inhabitants", "A11": "average_salary", "A14": "entrepreneurs"})
    for column, known in (("status", tuple(BAD_LOANS)), ("frequency", STATEMENTS)):
        refuse_unknown(archive, column, sorted(set(joined[column].astype(str))), known)
    regions = sorted(set(joined["A3"]))
    refuse_unknown(archive, "leave_out", spec.leave_out, regions, "a region of the data")
    joined = joined[~joined["A3"].isin(spec.leave_out)]
    kept = [region for region in regions if region not in spec.leave_out]
    dummies = [(joined["frequency"] == name).to_numpy(np.float64) for name in STATEMENTS[1:]]
    return Content(
        train=Split(
            np.column_stack([joined[list(FEATURES)].to_numpy(np.float64), *dummies]),
            joined["status"].map(BAD_LOANS).to_numpy(np.int64),
            joined["A3"].map({name: at for at, name in enumerate(kept)}).to_numpy(np.int64),
        ),
        class_names=["good", "bad"],
        notes={
            "features": [*FEATURES, "weekly", "after_transaction"],
            "groups": kept,
            "client_standardised": list(range(len(FEATURES))),
        },
    )


def _table(archive: Path, folder: Path, name: str) -> pd.DataFrame:
    path = next(iter(visible(folder, f"**/{name}.asc")), None)
    if path is None:
        raise lacking(archive, f"{name}.asc")
    where = f"{archive}: {name}.asc"
    return read_table(path, TABLES[name], where, sep=";", low_memory=False)[list(TABLES[name])]


def _dates(column: "pd.Series[int]", archive: Path) -> "pd.Series[pd.Timestamp]":
    dates = pd.to_datetime(column.astype(str), format="%y%m%d", errors="coerce")
    if dates.isna().any():
        raise bad_value(archive, "date", int(column[dates.isna()].iloc[0]), "YYMMDD")
    return dates


HELD_OUT_CLIPS = ("validation_list.txt", "testing_list.txt")
RATE = 16_000  # samples per second


def read_speech_commands(spec: SpeechCommands, source: Source) -> Content:
    """The clips of torchaudio's `training` subset, ordered by name, as int16.

    Raises:
        UserError: if the archive has another layout, or a clip is damaged.
    """
    archive = source.path / spec.archive.name
    root = opened_around(archive, source.scratch, *HELD_OUT_CLIPS)
    aside = {
        line.strip() for name in HELD_OUT_CLIPS for line in read_text(root / name).splitlines()
    }
    clips = [
        path
        for path in visible(root, "*/*.wav")
        if "_nohash_" in path.name and path.relative_to(root).as_posix() not in aside
    ]
    if not clips:
        raise refusal(archive, "expected WORD/SPEAKER_nohash_NUMBER.wav", code="missing")
    numbers = {name: at for at, name in enumerate(spec.class_names)}
    words = sorted({path.parent.name for path in clips})
    refuse_unknown(archive, "word", words, spec.class_names, "one of `class_names`")
    x = np.zeros((len(clips), 1, spec.samples), np.int16)
    for row, path in source.counted(clips):
        sound = _read_clip(path, f"{archive}: {path.relative_to(root)}")[: spec.samples]
        x[row, 0, : len(sound)] = sound
    speakers = np.array([path.name.partition("_nohash_")[0] for path in clips])
    names, group = np.unique(speakers, return_inverse=True)
    return Content(
        train=Split(x, np.array([numbers[path.parent.name] for path in clips]), group),
        class_names=list(spec.class_names),
        notes={"groups": names.tolist()},
    )


def _read_clip(path: Path, where: str) -> NDArray[np.int16]:
    with reading(where, wave.Error, EOFError, kind="sound"), wave.open(str(plain(path))) as file:
        shape = (file.getnchannels(), file.getsampwidth(), file.getframerate())
        content = file.readframes(file.getnframes())
        wanted = file.getnframes() * 2
    if shape != (1, 2, RATE) or len(content) != wanted:
        raise refusal(where, f"expected whole 16-bit sound, one channel, {RATE} a second")
    return np.frombuffer(content, "<i2")

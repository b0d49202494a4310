"""Heart disease and skin lesions; hospitals are the natural clients."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.data.catalogue.kinds import HeartDisease, Isic
from fedrepro.data.fetching.archives import opened
from fedrepro.data.readers.content import Content, Progress, Split
from fedrepro.data.readers.csv_tables import read_table
from fedrepro.data.readers.images import read_images
from fedrepro.support.errors import bad_value, refusal, refuse_unknown

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


def read_heart_disease(
    spec: HeartDisease, folder: Path, _scratch: Path, _progress: Progress
) -> Content:
    """The four hospitals' patients: 15 features; the label is 1 for any heart disease.

    Raises:
        UserError: if a column is missing or invalid, or the number of rows is wrong.
    """
    path = folder / spec.file.name
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


def read_isic(spec: Isic, folder: Path, scratch: Path, progress: Progress) -> Content:
    """ISIC 2019's lesions with complete metadata, resized and cropped to a square.

    As in FLamby, a lesion's centre is the first four letters of its id, extended for HAM10000's
    lesions by the data set that its table names. FLamby keeps images without the patient's age, sex
    or the lesion's site; AAggFF's released code does not. That code also augments training images
    in every round with random crops, rotations and colours; here each image is centre-cropped once.

    Raises:
        UserError: if a table or an image is missing or damaged.
    """
    files = spec.files
    labels = read_table(folder / files.labels.name, ("image", *spec.class_names))
    lesions = read_table(
        folder / files.metadata.name,
        ("image", "age_approx", "anatom_site_general", "lesion_id", "sex"),
    )
    ham = read_table(folder / files.ham.name, ("image_id", "dataset"))
    known = lesions.dropna().merge(
        ham[["image_id", "dataset"]], left_on="image", right_on="image_id", how="left"
    )
    prefix = known["lesion_id"].str[:4].replace({"BCN_": "BCN", "MSK4": "MSK"})
    known["centre"] = prefix + known["dataset"].fillna("")
    table = labels.merge(known[["image", "centre"]], on="image")
    table = table[~table["image"].isin(spec.leave_out)].reset_index(drop=True)
    refuse_unknown(folder, "centre", sorted(set(table["centre"])), spec.centres, "one of `centres`")
    archive = folder / files.images.name
    images = {path.stem: path for path in sorted(opened(archive, scratch).rglob("*.jpg"))}
    paths = [images.get(name, scratch / f"{name}.jpg") for name in table["image"]]
    return Content(
        train=Split(
            read_images(paths, archive, spec.side, progress, spec.shorter),
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

"""Small archives in the official layouts of AAggFF's data sets, and catalogue entries for them."""

import hashlib
import io
import json
import tarfile
import wave
import zipfile
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from fedrepro.data.catalogue.kinds import DatasetSpec
from support.raw_data import encoded, entry

REGIONS = ("north Bohemia", "Prague", "south Moravia")
ACCOUNTS = 24
WORDS = ("down", "go", "yes")


def by_macos(members: dict[str, Any]) -> dict[str, bytes]:
    """The files that an archive of macOS has beside its members, each named like one."""
    places = [PurePosixPath(name) for name in members]
    return {str("__MACOSX" / place.with_name(f"._{place.name}")): b"\0\5" for place in places}


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def raw_file(name: str, content: bytes, address: str | None) -> dict[str, Any]:
    """An entry whose authors give an MD5 and no size."""
    digest = hashlib.md5(content).hexdigest()
    return {"name": name, "md5": digest, "urls": [f"{address}/{name}"] if address else []}


def berka_tables() -> dict[str, bytes]:
    """PKDD'99's tables: semicolons, dates as YYMMDD, a '?' for a number of 1995."""
    numbers = range(1, ACCOUNTS + 1)
    loans = [
        f'{100 + i};{i};9401{i:02d};{1000 * i};12;{100.5 + i};"{"ABCD"[i % 4]}"' for i in numbers
    ]
    statements = ("POPLATEK MESICNE", "POPLATEK TYDNE", "POPLATEK PO OBRATU")
    accounts = [f'{i};{1 + i % 3};"{statements[i % 3]}";930101' for i in numbers]
    districts = [
        f'{at};"{name}";"{name}";{1000 * at};8000;{"?" if at == 2 else 1.5};2.5;100;'
        f"{'?' if at == 2 else 10};30"
        for at, name in enumerate(REGIONS, 1)
    ]
    orders = [f'{i};{i};"YZ";1;{10.0 * i};"SIPO"' for i in numbers]
    orders += [f'{100 + i};{i};"YZ";1;{30.0 * i};"SIPO"' for i in numbers]
    moves = [
        f'{10 * i + j};{i};940101;"PRIJEM";"VKLAD";{100.0 * j};{1000.0 + i};;;'
        for i in numbers
        for j in range(1, 1 + i % 3 + 1)
    ]
    tables = {
        "loan": ('"loan_id";"account_id";"date";"amount";"duration";"payments";"status"', loans),
        "account": ('"account_id";"district_id";"frequency";"date"', accounts),
        "district": ("A1;A2;A3;A4;A11;A12;A13;A14;A15;A16", districts),
        "order": ('"order_id";"account_id";"bank_to";"account_to";"amount";"k_symbol"', orders),
        "trans": (
            '"trans_id";"account_id";"date";"type";"operation";"amount";"balance";"k_symbol";'
            '"bank";"account"',
            moves,
        ),
    }
    return {
        f"{name}.asc": ("\n".join([head, *rows]) + "\n").encode()
        for name, (head, rows) in tables.items()
    }


def berka(tables: dict[str, bytes], address: str | None) -> tuple[DatasetSpec, dict[str, bytes]]:
    content = zipped(tables)
    archive = raw_file("data_berka.zip", content, address)
    spec = entry("berka", task="binary", archive=archive, leave_out=[REGIONS[0]])
    return spec, {"data_berka.zip": content}


def celeba(address: str | None, **damage: bytes) -> tuple[DatasetSpec, dict[str, bytes]]:
    """Celebrity 7 with three images, 10 with two, 8 with one."""
    owners = {"000001.jpg": 10, "000002.jpg": 7, "000003.jpg": 7, "000004.jpg": 8}
    owners |= {"000005.jpg": 7, "000006.jpg": 10}
    images = {
        f"img_align_celeba/{name}": encoded((40 * at, 0, 0), 12, "JPEG")
        for at, name in enumerate(owners)
    }
    rows = [f"{name} {'1 -1' if at % 2 else '-1  1'}" for at, name in enumerate(owners)]
    contents = {
        "identity_CelebA.txt": "".join(f"{n} {who}\n" for n, who in owners.items()).encode(),
        "list_attr_celeba.txt": "\n".join([str(len(rows)), "Young Smiling", *rows]).encode(),
        "img_align_celeba.zip": zipped(images),
    } | {name.replace("__", "."): content for name, content in damage.items()}
    roles = ("identities", "attributes", "images")
    files = {
        role: raw_file(name, content, address)
        for role, (name, content) in zip(roles, contents.items(), strict=True)
    }
    return entry("celeba", task="binary", files=files, minimum=2, side=6), contents


def wav(samples: int, value: int, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(np.full(samples, value, "<i2").tobytes())
    return file.getvalue()


def clips() -> dict[str, bytes]:
    """Two speakers; one clip each for validation and testing, one of noise."""
    return {
        "validation_list.txt": b"go/aa_nohash_0.wav\n",
        "testing_list.txt": b"yes/bb_nohash_1.wav\n",
        "_background_noise_/pink.wav": wav(30, 5),
        "down/aa_nohash_0.wav": wav(20, -3),
        "down/bb_nohash_0.wav": wav(10, 4),
        "go/aa_nohash_0.wav": wav(20, 1),
        "go/aa_nohash_1.wav": wav(25, 2),
        "yes/bb_nohash_1.wav": wav(20, 1),
        "yes/aa_nohash_0.wav": wav(20, 7),
    }


def speech(members: dict[str, bytes], address: str | None) -> tuple[DatasetSpec, dict[str, bytes]]:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    name, content = "speech_commands_v0.02.tar.gz", file.getvalue()
    spec = entry(
        "speech_commands", archive=raw_file(name, content, address), class_names=WORDS, samples=20
    )
    return spec, {name: content}


def isic(address: str | None, **damage: bytes) -> tuple[DatasetSpec, dict[str, bytes]]:
    """Five images; one has no lesion's number, one no age, one is left out."""
    about = {
        "ISIC_1": ("BCN_0000001", "50", "BCN"),
        "ISIC_2": ("HAM_0000002", "60", "HAM_rosendahl"),
        "ISIC_3": ("", "60", ""),
        "ISIC_4": ("MSK4_000001", "", "MSK"),
        "ISIC_5": ("MSK4_000002", "30", "MSK"),
        "ISIC_6": ("MSK4_000003", "30", "MSK"),
    }
    labels = [f"{name},{at % 2}.0,{1 - at % 2}.0" for at, name in enumerate(about)]
    lesions = [f"{name},{age},torso,{number},male" for name, (number, age, _) in about.items()]
    images = {
        f"ISIC_2019_Training_Input/{name}.jpg": encoded((0, 50 * at, 0), 20 + at, "JPEG")
        for at, name in enumerate(about)
    }
    contents = {
        "ISIC_2019_Training_Input.zip": zipped(images),
        "ISIC_2019_Training_GroundTruth.csv": "\n".join(["image,MEL,NV", *labels]).encode(),
        "ISIC_2019_Training_Metadata.csv": "\n".join(
            ["image,age_approx,anatom_site_general,lesion_id,sex", *lesions]
        ).encode(),
        "HAM10000_metadata": b"lesion_id,image_id,dx,dataset\nHAM_0000002,ISIC_2,nv,_rosendahl\n",
    } | {name.replace("__", "."): content for name, content in damage.items()}
    roles = ("images", "labels", "metadata", "ham")
    files = {
        role: raw_file(name, content, address)
        for role, (name, content) in zip(roles, contents.items(), strict=True)
    }
    keys = {"centres": ["BCN", "HAM__rosendahl", "MSK"], "leave_out": ["ISIC_6"]}
    keys |= {"class_names": ["MEL", "NV"], "shorter": 10, "side": 8}
    return entry("isic2019", files=files, **keys), contents


def tiny_imagenet(address: str | None, **damage: bytes) -> tuple[DatasetSpec, dict[str, bytes]]:
    names = ("n02", "n01")
    members = {"wnids.txt": "\n".join(names).encode()}
    for at, name in enumerate(names):
        for number in range(2):
            image = encoded((100 * at, 10 * number, 0), 8, "JPEG")
            members[f"train/{name}/images/{name}_{number}.JPEG"] = image
    members["val/images/val_0.JPEG"] = encoded((0, 0, 9), 8, "JPEG")
    members["val/val_annotations.txt"] = b"val_0.JPEG\tn02\t0\t0\t7\t7\n"
    members |= {name.replace("__", "."): content for name, content in damage.items()}
    content = zipped({f"tiny-imagenet-200/{name}": each for name, each in members.items()})
    archive = raw_file("tiny-imagenet-200.zip", content, address)
    return entry("tiny_imagenet", archive=archive, side=8), {"tiny-imagenet-200.zip": content}


def reddit(**changes: Any) -> dict[str, bytes]:
    """LEAF's JSON of two users, and one for testing only."""

    def user(*texts: str) -> dict[str, Any]:
        pieces = [text.split() for text in texts]
        return {
            "x": [[piece[:-1]] for piece in pieces],
            "y": [{"target_tokens": [piece[1:]], "count_tokens": [[1]]} for piece in pieces],
        }

    def part(**users: dict[str, Any]) -> bytes:
        return json.dumps({"users": list(users), "user_data": users}).encode()

    return {
        "reddit_subsampled/train/train_data.json": part(
            zoe=user("<BOS> a b a", "<BOS> a c <EOS>"), al=user("<BOS> b a <PAD>")
        ),
        "reddit_subsampled/val/val_data.json": part(zoe=user("<BOS> v v v")),
        "reddit_subsampled/test/test_data.json": part(
            zoe=user("<BOS> a new <EOS>"), ben=user("<BOS> b b b"), al=user("<BOS> b b b")
        ),
    } | changes


def question_pairs(text: str, tokenizer: str) -> tuple[DatasetSpec, dict[str, bytes]]:
    content = text.encode()
    file = raw_file("mqp.csv", content, None)
    spec = entry("question_pairs", task="binary", file=file, tokenizer=tokenizer, length=12)
    return spec, {"mqp.csv": content}

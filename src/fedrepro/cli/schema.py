"""JSON schemas of the files in ``config/``, for editors; ``fedrepro schema`` writes them."""

import json
from typing import Any

from pydantic import BaseModel

from fedrepro.config.settings import Config
from fedrepro.config.workbench import Experiment
from fedrepro.data.catalogue.catalogue import Catalogue

SCHEMAS: dict[str, type[BaseModel]] = {
    "config.json": Config,
    "experiment.json": Experiment,
    "datasets.json": Catalogue,
}


def text_of(model: type[BaseModel]) -> str:
    """The schema of a file, as it is written to disk."""
    schema = model.model_json_schema()
    setting: dict[str, Any] | None = schema.get("$defs", {}).get("Setting")
    if setting:
        # A setting that extends another one need not say everything again.
        setting["anyOf"] = [{"required": ["extends"]}, {"required": setting.pop("required")}]
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"

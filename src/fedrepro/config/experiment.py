"""Experiment files: settings, tables, figures and searches of a system, and their methods."""

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, PrivateAttr

from fedrepro.config import searches
from fedrepro.config.config_file import Seeds
from fedrepro.config.figures import FigureSpec
from fedrepro.config.searches import LEAGUE_SHARE, TEXT, Search, Searched
from fedrepro.config.settings import ArtifactFromRun, Setting
from fedrepro.config.tables import ComputedSpec, Table
from fedrepro.config.values import Hyperparameters, Name
from fedrepro.methods.facts import UNKNOWN, defaults_of
from fedrepro.methods.files import part_files
from fedrepro.support.errors import UserError, refusal
from fedrepro.support.names import RELEASED, Composition, Part, SettingName
from fedrepro.support.old_names import FIRST_NAMES
from fedrepro.support.packaged import ORIGIN
from fedrepro.support.papers import load_kinds
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.typed_yaml import Typed, any_of

# All kinds of figures and of tables without runs, papers' packages included.
load_kinds()
if TYPE_CHECKING:
    Figure = FigureSpec
    Computed = ComputedSpec
else:
    Figure = any_of(FigureSpec, "kind")
    Computed = any_of(ComputedSpec, "kind")

EXPERIMENTS = Path("config/experiments")
COMPACT = Path("config/compact")


def shipped() -> list[str]:
    """The systems whose experiments come with the package."""
    return sorted(path.stem for path in (ORIGIN / EXPERIMENTS).glob("*.yaml"))


def how_to_add(name: str, root: Path) -> str:
    """For errors: the command that adds the system of a name to a workbench.

    Returns "" if the workbench already has the system, or if the package does not ship it.
    """
    system = SettingName.parse(name).system
    if system not in shipped() or (root / EXPERIMENTS / f"{system}.yaml").exists():
        return ""
    return f"; `fedrepro init --with {system}` adds {system} to this workbench"


# Folders of the site that hold other pages than a system's.
OF_PAGES = ("assets", "claims", "compare", "methods", "reference", "runs")


def _no_folder_of_pages(name: str) -> str:
    if name in OF_PAGES:
        raise ValueError(f"a name other than {', '.join(OF_PAGES)}, which are folders of the site")
    return name


class CompactFile(Typed):
    """config/compact/<system>.yaml: a system's tables of scale compact, and what only they use.

    Attributes:
        methods: as in the experiment file, for these tables only.
        settings: the small settings, by name.
        tables: the tables that test the paper's claims, by name.
        search: what was searched on validation samples before the tables ran.
        tunes: what the paper tunes: where it says so, by key of a setting or
            <part>.<hyperparameter>. Pages say which of it no search has.
    """

    methods: dict[str, Hyperparameters] = Field(default={})
    settings: dict[Name, Setting]
    tables: dict[Name, Table] = Field(default={})  # none yet while a search is written
    search: dict[Name, Search] = Field(default={})
    tunes: dict[str, str] = Field(default={})


class Experiment(Typed):
    """config/experiments/<system>.yaml.

    Attributes:
        system: its name, which is the file's name without suffix.
        title: its heading on pages.
        paper: the paper's citation; `none` if there is none.
        seeds: replace those of config.yaml.
        methods: hyperparameters by part name. With the key 'variant_of', a named variant of that
            part; with 'parent', the method whose run it may continue.
        settings: data, model and schedule of runs, by name.
        tables: rows of settings and columns of methods, by name.
        computed: tables that need no runs.
        figures: panels of curves, bars or maps, by name.
        search: hyperparameters chosen on clients' validation samples.
        compact: tables of scale compact, which `config/compact/SYSTEM.yaml` adds.
        compact_search: searches of scale compact, which the same file adds.
        tunes: what the paper tunes, which the same file says.
    """

    system: Annotated[Name, AfterValidator(_no_folder_of_pages)]
    title: str
    paper: str
    seeds: Seeds | None = None
    methods: dict[str, Hyperparameters] = Field(default={})
    settings: dict[Name, Setting] = Field(default={})
    tables: dict[Name, Table] = Field(default={})
    computed: dict[Name, Computed] = Field(default={})
    figures: dict[Name, Figure] = Field(default={})
    search: dict[Name, Search] = Field(default={})
    compact: dict[Name, Table] = Field(default={})
    compact_search: dict[Name, Search] = Field(default={})
    tunes: dict[str, str] = Field(default={})

    _own: Folders = PrivateAttr(default=NONE)  # folders of plug-ins
    _changed: dict[str, Setting | None] = PrivateAttr(default_factory=dict)  # by name

    @property
    def all_searches(self) -> dict[str, Search]:
        """The searches of all scales."""
        return {**self.search, **self.compact_search}

    @property
    def all_tables(self) -> dict[str, Table]:
        """The printed tables' counterparts, and the tables of scale compact."""
        return {**self.tables, **self.compact}

    @cached_property
    def readings(self) -> dict[str, Setting]:
        """The settings by name, in all readings.

        These include ``<name>@released`` where the released code differs, and
        ``<name>@validation<share>`` where a search keeps validation samples, in which a candidate's
        keys may follow.
        """
        readings = dict(self.plain_readings)
        for search in self.all_searches.values():
            choice = partial(self.choice, search)
            variants = searches.variants_of(search, choice)
            for name in {search.setting, *filter(None, [search.demo])} & self.plain_readings.keys():
                plain = self.plain_readings[name]
                for suffix, keys in {"": {}, **searches.settings_of(search, choice)}.items():
                    reading = search.reading(name) + suffix
                    try:
                        setting = readings.get(reading) or plain.with_keys(keys, self._own)
                    except UserError:  # a search goes no further than its key
                        continue
                    self._hold_out(readings, setting, reading, search.validation, variants)
        for row in (row for table in self.compact.values() for row in table.rows if row.league):
            reading = searches.validated_name(row.setting, LEAGUE_SHARE)
            own = readings.get(row.setting)
            if own and reading not in readings and not own.partition.validation:
                self._hold_out(readings, own, reading, LEAGUE_SHARE, {})
        return readings

    def _hold_out(
        self,
        readings: dict[str, Setting],
        setting: Setting,
        reading: str,
        share: float,
        variants: dict[str, Hyperparameters],
    ) -> None:
        """Add a setting's reading with validation samples, which its inputs must not have seen.

        So an input that clients train is of such a reading, too, which is added.
        """
        readings[reading] = setting.validated(reading, share, variants)
        for need, source in setting.inputs.items():
            if isinstance(source, ArtifactFromRun):
                its = self.plain_readings.get(source.setting)
                if its and its.partition.scheme != "at_server" and not its.partition.validation:
                    name = searches.validated_name(source.setting, share)
                    if name not in readings:
                        self._hold_out(readings, its, name, share, {})
                    readings[reading].inputs[need] = source.model_copy(update={"setting": name})

    def reading(self, name: str) -> Setting | None:
        """A setting by its name, or with other values of keys, such as ``s_optimizer.lr0.1``.

        Raises:
            UserError: for a value that a key can't have.
        """
        if name in self.readings:
            return self.readings[name]
        if name not in self._changed:
            self._changed[name] = self._said_by_setting(name)
        return self._changed[name]

    def _said_by_setting(self, name: str) -> Setting | None:
        for base in filter(None, map(self.readings.get, _beginnings(name))):
            known = {FIRST_NAMES.get(key, key): value for key, value in base.scalars.items()}
            if values := searches.values_in(name.removeprefix(base.local_name), known, TEXT):
                keys = {base.named(key)[0]: value for key, value in values.items()}
                return base.with_keys(keys, self._own).called(name)
        return None

    @cached_property
    def plain_readings(self) -> dict[str, Setting]:
        """The readings without validation samples."""
        released = {
            f"{name}{RELEASED}": setting.as_released()
            for name, setting in self.settings.items()
            if setting.released
        }
        return {**self.settings, **released}

    def part(
        self, setting: Setting, name: str, above: tuple[str, ...] = ()
    ) -> tuple[str, Hyperparameters]:
        """The base part of a named part in a setting, and its hyperparameters.

        A name that nothing else has may be that of a candidate, such as ``fedprox_mu0.1``.

        Raises:
            UserError: for a variant of itself.
        """
        own = {**self.methods.get(name, {}), **setting.methods.get(name, {})}
        # Names are looked up often; a folder of plug-ins is not.
        if not own and "_" in name and not self._is_known(setting, name):
            own = self.said_by(setting, name)
        base = str(own.pop("variant_of", name))
        if base == name:
            return base, own
        if base in above:
            way = " <- ".join((*above, name, base))
            where = f"{EXPERIMENTS}/{self.system}.yaml"
            why = f"methods: variant_of: {way}: circular"
            raise refusal(where, why, f"methods.{name}.variant_of", way)
        base, inherited = self.part(setting, base, (*above, name))
        return base, {**inherited, **own}

    def _is_known(self, setting: Setting, name: str) -> bool:
        return any(name in own for own in (self.methods, setting.methods, part_files(self._own)))

    def has_another(self, setting: Setting, name: str, variant: Hyperparameters) -> bool:
        """Whether a part with a candidate's name is there that is not this candidate."""
        if not self._is_known(setting, name):
            return False
        base, said = self.part(setting, str(variant["variant_of"]))
        wanted = {key: value for key, value in variant.items() if key != "variant_of"}
        there, own = self.part(setting, name)
        return (there, {**own, "parent": None}) != (base, {**said, **wanted, "parent": None})

    def said_by(self, setting: Setting, name: str) -> Hyperparameters:
        """What a candidate's name says, in the form of `methods`; nothing if it is none."""
        for part in (each for each in _beginnings(name) if self._is_known(setting, each)):
            base, _ = self.part(setting, part)
            known = defaults_of(base, self._own) if base in part_files(self._own) else {}
            values = searches.values_in(name.removeprefix(part), known)
            if values and not values.keys() & self.said_by(setting, part).keys():
                # As a search's candidates: it shares no prefix with the part's parent run.
                return {"variant_of": part, "parent": None, **values}
        return {}

    def choice(self, search: Search, searched: Searched) -> Hyperparameters | None:
        """The published values of what is searched; None if one is unknown."""
        setting = self.plain_readings.get(search.setting)
        values: Hyperparameters = {}
        for key in searched.keys:
            own = setting.scalars.get(key) if setting else None
            value = searched.published.get(key, own)
            if value is None:
                return None
            values[key] = value
        for key in searched.grid:
            part, name = searched.place_of(key)
            base, said = self.part(setting, part) if setting else (part, {})
            released = Part(part, RELEASED) in Composition.parse(searched.method).parts
            value = said.get(name, defaults_of(base, self._own, released).get(name, UNKNOWN))
            value = searched.published.get(key, value)
            if value is UNKNOWN:
                return None
            values[key] = value
        return values


def without_values(
    composition: str, folders: Folders = NONE
) -> tuple[str, dict[str, Hyperparameters]]:
    """Split a composition such as ``ima+fedprox_mu0.1`` into parts and, by part, named values.

    Variants of experiment files are not known here. A name without values stays as it is.
    """
    known, parts = part_files(folders), []
    said: dict[str, Hyperparameters] = {}
    for part in Composition.parse(composition).parts:
        for base in [] if part.name in known else _beginnings(part.name):
            own = defaults_of(base, folders) if base in known else {}
            if values := searches.values_in(part.name.removeprefix(base), own):
                part, said[base] = part.named(base), values
                break
        parts.append(part)
    return str(Composition.of(parts)), said


def _beginnings(name: str) -> list[str]:
    """The possible names before a candidate's values; the longest first."""
    parts = name.split("_")
    return ["_".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]

"""Partition schemes of experiment files.

To add a scheme, add a class with its keys here, and a function with its name in ``assigning``. This
module does not import numpy, because reading an experiment file does not need it.

A plug-in is such a class, with ``assign``, in a file of the scheme's name
(:mod:`fedrepro.support.plugins`).
"""

import hashlib
import inspect
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import SerializeAsAny, ValidationInfo, WrapValidator, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value, refusal
from fedrepro.support.typed_yaml import (
    Fraction,
    PositiveReal,
    PositiveWhole,
    Seed,
    Share,
    Typed,
    any_of,
    later,
)

if TYPE_CHECKING:
    from numpy.random import RandomState

    from fedrepro.data.partition.assigning import Indices

# Plug-ins import these from here.
Count = PositiveWhole
Positive = PositiveReal


class Scheme(Typed):
    """The base of all partition schemes.

    Attributes:
        scheme: the scheme's name.
        clients: the number of clients.
        test_fraction: the share of its samples that each client holds out for testing, rounded, but
            at least one sample and not all of them: a client with a single sample is an error.
            (SuPerFed's code rounds down, so a client with four samples tests on none.)
        stratified: hold out the same share of each class (by largest remainders).
        server: the share of each class that no client gets; the server has it, without labels. It
            depends only on the labels, so that what is trained on it serves every scheme and seed.
        validation: the share of the remaining training samples that each client uses only to choose
            hyperparameters: rounded, at least one sample and not all of them, stratified like its
            test samples.
        seed: of the partition, replacing the run's: runs with different seeds then have the same
            clients, as a decomposition of their loss needs.
        groups_from: the data sets that have groups, in words, for a scheme that needs them.
    """

    groups_from: ClassVar[str] = ""
    scheme: str
    clients: Count | None
    test_fraction: Share = 0.0
    stratified: bool = False
    server: Share = later(0.0, "The server's share of each class, the same for all seeds.")
    seed: Seed | None = later(None, "Replaces the run's seed: the same clients for all seeds.")
    validation: Share = later(
        0.0, "The share of clients' training samples that is used to choose hyperparameters."
    )

    @property
    def name(self) -> str:
        """A path-safe name, different for different schemes."""
        held_out = [f"test{_in_path(self.test_fraction)}"] if self.test_fraction else []
        stratified = ["stratified"] if self._holds_out and self.stratified else []
        server = [f"server{_in_path(self.server)}"] if self.server else []
        seed = [] if self.seed is None else [f"dealt{self.seed}"]
        chosen = [f"validation{_in_path(self.validation)}"] if self.validation else []
        own = self._parts()
        own = own if own[:1] == [self.scheme] else [self.scheme, *own]
        own += self._other_keys(own)
        return "-".join([*own, *held_out, *stratified, *server, *seed, *chosen])

    def _other_keys(self, parts: list[str]) -> list[str]:
        """The keys that ``_parts`` leaves out: without them, two settings would share a partition.

        A value that is not the default must be in a part, and each part counts for one key.
        """
        left = parts[1:]
        keys = {key: field.default for key, field in type(self).model_fields.items()}
        keys = {
            key: keys[key] for key in keys if key not in Scheme.model_fields or key == "clients"
        }
        missing = {key: value for key in keys if (value := getattr(self, key)) != keys[key]}
        for told in (_is_key_with, _is_with):
            for key, value in list(missing.items()):
                part = next((part for part in left if told(part, key, value)), None)
                if part is not None:
                    left.remove(part)
                    del missing[key]
        return [f"{key}{_in_path(value)}" for key, value in missing.items()]

    @property
    def _holds_out(self) -> bool:
        return bool(self.test_fraction or self.validation)

    @property
    def schemes(self) -> tuple[str, ...]:
        """Its name, and that of the scheme within it."""
        return (self.scheme,)

    @property
    def by_class(self) -> bool:
        """Whether it depends on samples' classes which client has them."""
        return True

    def assign(
        self, labels: "Indices", groups: "Indices | None", random: "RandomState"
    ) -> list["Indices"]:
        """Each client's samples, as indices from 0 to n - 1.

        By default, call the function with the scheme's name in ``assigning``, with those of these
        arguments and of the scheme's keys that its signature names.

        Args:
            labels: int64 [n], the class of each sample.
            groups: int64 [n], each sample's natural client, or None.
            random: seeded with the partition's seed.

        Raises:
            UserError: if the scheme cannot be applied to these samples.
        """
        from fedrepro.data.partition import assigning

        if self.groups_from and groups is None:
            raise self.refused("scheme", f"a data set with groups: one {self.groups_from}")
        self.check(labels, groups)
        function = getattr(assigning, self.scheme)
        known = {"labels": labels, "groups": groups, "random": random, **dict(self)}
        known |= self._derived(random)
        names = inspect.signature(function).parameters
        assigned: list[Indices] = function(**{name: known[name] for name in names})
        return assigned

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        """Reject samples to which the scheme cannot be applied.

        Raises:
            UserError: with key, value and what was expected.
        """

    def _derived(self, random: "RandomState") -> dict[str, Any]:
        """Arguments of its function that follow from its keys."""
        return {}

    def _parts(self) -> list[str]:
        """Its name, and the parts for keys that are not called by their own names and values.

        A key that no part has is added with its value, unless that is the default.
        """
        return [self.scheme]

    def refused(self, key: str, expectation: str) -> UserError:
        """The error for a value that these samples do not allow."""
        return bad_value(f"partition {self.name}", key, getattr(self, key), expectation)


def _in_path(value: Any) -> str:
    """A value as a part of a file's name, different for different values."""
    text = value.name if isinstance(value, Scheme) else str(value)
    if isinstance(value, float):
        text = f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if re.fullmatch(r"[A-Za-z0-9_.+-]+", text):
        return text
    return hashlib.sha256(repr(value).encode()).hexdigest()[:8]


def _is_key_with(part: str, key: str, value: Any) -> bool:
    return part == f"{key}{_in_path(value)}" or (value is True and part == key)


def _is_with(part: str, key: str, value: Any) -> bool:
    """Return True if a part consists of a word, such as a key's short form, and the value."""
    return re.fullmatch(rf"[A-Za-z_]*{re.escape(_in_path(value))}", part) is not None


class Iid(Scheme):
    """Equal parts of a random permutation."""

    scheme: Literal["iid"]
    clients: Count

    @property
    def by_class(self) -> bool:
        return False


class Shards(Scheme):
    """Samples sorted by class and cut into equal shards, `classes_per_client` for each client.

    The published "#C=2" of FMNIST and CIFAR-10 in IMA (discrepancy B8). A shard may straddle two
    classes and two shards may be of one class, so a client can hold one to four classes.

    Attributes:
        classes_per_client: how many shards each client gets.
    """

    scheme: Literal["shards"]
    clients: Count
    classes_per_client: Count

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        wanted = self.clients * self.classes_per_client
        if wanted > len(labels):
            raise self.refused(
                "classes_per_client",
                f"at most {len(labels) // self.clients} ({wanted} shards need a sample each, "
                f"there are {len(labels)})",
            )

    def _parts(self) -> list[str]:
        return ["shards", f"clients{self.clients}", f"classes{self.classes_per_client}"]


class PairedShards(Scheme):
    """SuPerFed's pathological split: samples sorted by class, 2K shards, client i has i and i + K.

    Nothing is random except what clients hold out. Unlike in `shards`, all samples are used: shard
    sizes differ by at most one.
    """

    scheme: Literal["paired_shards"]
    clients: Count

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        if 2 * self.clients > len(labels):
            most = len(labels) // 2
            raise self.refused("clients", f"at most {most}, half of the number of samples")


class Dirichlet(Scheme):
    """Each class split in Dirichlet(alpha) proportions (Hsu et al. 2019, as in FedLab).

    A client that already has N/K samples gets nothing of the later classes. The whole draw is
    repeated until every client has `minimum` samples.

    SuPerFed's code draws in the same way, but drops clients with ten samples or fewer instead of
    repeating the draw. It needs no separate scheme: in 200 draws for each of its settings
    (CIFAR-100, K = 100; TinyImageNet, K = 200; MNIST, K = 100; alpha 1 and 10) every client had at
    least 125 samples, so that no client is dropped and no draw is repeated.

    Attributes:
        alpha: the concentration: the smaller, the fewer classes a client mostly has.
        minimum: of samples that every client must have.
    """

    scheme: Literal["dirichlet"]
    clients: Count
    alpha: Positive
    minimum: Count = 10

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        if self.minimum * self.clients > len(labels):
            most = len(labels) // self.clients
            samples = f"{len(labels)} samples / {self.clients} clients"
            raise self.refused("minimum", f"at most {most} ({samples})")

    def _parts(self) -> list[str]:
        parts = ["dirichlet", f"clients{self.clients}", f"alpha{self.alpha:g}"]
        return [*parts, f"minimum{self.minimum}"]


class GroupedDirichlet(Scheme):
    """FedDF's variant (Lin et al. 2020): groups of ten clients, each with its part of the data.

    Within a group, no client has less than half of the mean size, so client sizes vary little. It
    terminates where `dirichlet` with small alpha does not (discrepancies A7 and B17).

    Attributes:
        alpha: the concentration: the smaller, the fewer classes a client mostly has.
    """

    scheme: Literal["grouped_dirichlet"]
    clients: Count
    alpha: Positive


class Labels(Scheme):
    """Each client holds exactly `classes_per_client` classes (NIID-Bench's "#label=k").

    Attributes:
        classes_per_client: how many classes each client holds.
    """

    scheme: Literal["labels"]
    clients: Count
    classes_per_client: Count

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        classes = len(set(labels.tolist()))
        if self.classes_per_client > classes:
            raise self.refused("classes_per_client", f"at most {classes}, the number of classes")

    def _parts(self) -> list[str]:
        return ["labels", f"clients{self.clients}", f"classes{self.classes_per_client}"]


class ClientDirichlet(Scheme):
    """Hsu et al. (2019): N/K samples for each client, with its own Dirichlet class proportions.

    The Dirichlet's mean is the class frequencies and `alpha` its concentration; with 0.01 a client
    has one or two classes. No client is empty and, unlike in AAggFF's released code, no sample is
    used twice. Exhausted classes are removed from later clients' draws.

    Attributes:
        alpha: the concentration: the smaller, the fewer classes a client mostly has.
    """

    scheme: Literal["client_dirichlet"]
    clients: Count
    alpha: Positive


class ReusingDirichlet(Scheme):
    """AAggFF's and FedEvg's released version of `client_dirichlet` (discrepancy 42).

    It assigns samples several times, to different clients and to the same one, which may then test
    on samples that it trains on. For comparison only; using it prints a warning.

    Attributes:
        alpha: the concentration: the smaller, the fewer classes a client mostly has.
    """

    scheme: Literal["reusing_dirichlet"]
    clients: Count
    alpha: Positive

    def _derived(self, random: "RandomState") -> dict[str, Any]:
        # As released: enough of a class to hold one out.
        return {"least": int(1 / self.test_fraction) if self.test_fraction else 1}


class Natural(Scheme):
    """One client for each value of the data's group column, or for `clients` random ones.

    Attributes:
        clients: how many of the groups are used, drawn at random; left out: all.
        minimum: groups with fewer samples are not used.
        given_test: clients hold out the test samples that the data set marks.
    """

    groups_from = (
        "with a `group` (a column of a table), or with a `layout` (folders of images) that has "
        "clients, in config/datasets.yaml"
    )
    scheme: Literal["natural"]
    clients: Count | None = None
    minimum: Count = 1
    given_test: bool = False

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        if self.given_test and self.test_fraction:
            raise ValueError("either `given_test` or `test_fraction`")
        return self

    @property
    def by_class(self) -> bool:
        return False

    def _parts(self) -> list[str]:
        return [
            "natural",
            *([f"clients{self.clients}"] if self.clients else []),
            *([f"minimum{self.minimum}"] if self.minimum > 1 else []),
            *(["given_test"] if self.given_test else []),
        ]


class AtServer(Scheme):
    """One client, the server, with the samples that ``server: share`` reserves in other schemes.

    Attributes:
        share: of each class.
        clients: always 1.
    """

    scheme: Literal["at_server"]
    share: Fraction
    clients: Literal[1] = 1

    @model_validator(mode="after")
    def _not_twice(self) -> Self:
        if self.server:
            raise ValueError("`share` instead of `server`, which is for other schemes")
        return self


class Pachinko(Scheme):
    """Pachinko allocation, for data whose groups are superclasses (CIFAR-100).

    Each client draws its N/K samples with Dirichlet proportions of superclasses and of the classes
    in each (Reddi et al., ICLR 2021, as in TensorFlow Federated). IMA's released code lacks it
    (discrepancy B6).

    Attributes:
        coarse: alpha of the superclasses.
        fine: alpha of the classes within one.
    """

    groups_from = "with superclasses, as CIFAR-100 with `superclasses: true`"
    scheme: Literal["pachinko"]
    clients: Count
    coarse: Positive = 0.1
    fine: Positive = 10.0

    def _parts(self) -> list[str]:
        alphas = [f"coarse{self.coarse:g}", f"fine{self.fine:g}"]
        return ["pachinko", f"clients{self.clients}", *alphas]


def own_scheme(file: Path) -> type[Scheme]:
    """The scheme in a plug-in's file.

    Raises:
        UserError: unless the file has exactly one.
    """
    classes = plugins.classes_in(plugins.import_file("partitions", file), Scheme)
    if len(classes) != 1 or classes[0].assign is Scheme.assign:
        wanted = "expected exactly one class that extends Scheme and has `assign`"
        raise refusal(file, f"{wanted}, found {len(classes)}", value=len(classes))
    return classes[0]


@cache
def _built_in() -> frozenset[str]:
    """The names of the schemes in this module."""
    classes = (value for value in globals().values() if inspect.isclass(value))
    schemes = (cls for cls in classes if issubclass(cls, Scheme))
    return frozenset(
        name for cls in schemes for name in get_args(cls.model_fields["scheme"].annotation)
    )


def _or_own(
    value: Any,
    handler: ModelWrapValidatorHandler[Any],
    info: ValidationInfo[plugins.Folders | None],
) -> Any:
    name = value.get("scheme") if isinstance(value, Mapping) else None
    file = (info.context or plugins.NONE).files("partitions", _built_in()).get(str(name))
    if file is None:
        return handler(value)
    return own_scheme(file).model_validate(value, context=info.context)


def _any_scheme() -> Any:
    """The union of the schemes above and plug-ins; dumps contain a plug-in's own keys."""
    any_dump = SerializeAsAny()  # type: ignore[type-arg]  # used as an annotation, not a type
    return Annotated[any_of(Scheme, "scheme"), any_dump, WrapValidator(_or_own)]


if TYPE_CHECKING:
    Within = Scheme
else:
    Within = _any_scheme()


class Domains(Scheme):
    """Apply the scheme `within` to each of the data's groups: feature skew as well as label skew.

    `within.clients` is the number per group; the first group's clients come first.

    Attributes:
        clients: follows from `within` and the number of groups; do not give it.
        within: the scheme for each group, with its own keys.
    """

    groups_from = "of several domains, such as digit_five"
    scheme: Literal["domains"]
    clients: None = None
    within: Within

    @model_validator(mode="after")
    def _of_all_groups(self) -> Self:
        for key, field in Scheme.model_fields.items():  # in `within`, they would change nothing
            if key not in ("scheme", "clients") and getattr(self.within, key) != field.default:
                raise ValueError(f"`{key}` next to `within`, not in it")
        return self

    def _derived(self, random: "RandomState") -> dict[str, Any]:
        return {"assign": lambda labels: self.within.assign(labels, None, random)}

    @property
    def schemes(self) -> tuple[str, ...]:
        """Its name, and those of the scheme within it."""
        return (self.scheme, *self.within.schemes)

    @property
    def by_class(self) -> bool:
        return self.within.by_class

    def _parts(self) -> list[str]:
        return ["domains", self.within.name]


if TYPE_CHECKING:
    PartitionSpec = Scheme
else:
    PartitionSpec = _any_scheme()

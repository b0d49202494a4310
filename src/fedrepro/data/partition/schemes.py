"""How a data set can be shared out among clients, as it is written in an experiment file.

A further scheme is a class here, with its keys, and a function of its name in ``dealing``. Numpy is
imported by those who deal: reading an experiment file needs none.

A scheme of your own is such a class in a file of its name, in a folder of your own
(:mod:`fedrepro.support.plugins`).
"""

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, SerializeAsAny, ValidationInfo, WrapValidator, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.typed_yaml import Real, Typed, Whole, any_of, expected, later

if TYPE_CHECKING:
    from numpy.random import RandomState

    from fedrepro.data.partition.assigning import Indices

Count = Annotated[Whole, Field(ge=1), expected("a whole number of at least 1")]
Positive = Annotated[Real, Field(gt=0, allow_inf_nan=False), expected("a finite number above 0")]
Fraction = Annotated[Real, Field(gt=0, le=1), expected("a number above 0 and at most 1")]
Seed = Annotated[Whole, Field(ge=0, lt=2**32), expected("a whole number from 0 to 4294967295")]
Share = Annotated[Real, Field(ge=0, lt=1), expected("a number of at least 0 and below 1")]


class Scheme(Typed):
    """What all schemes share.

    Attributes:
        scheme: which one it is.
        clients: how many; None: as many as there are groups.
        test_fraction: the share of its own samples that each client holds out for testing,
            rounded, but at least one sample and not all of them: a client with a single one is
            refused. (SuPerFed's code rounds down, so that a client with four tests with none.)
        stratified: hold out the same share of each class (by largest remainders).
        server: the share of each class that no client gets: the server has it, without labels.
            Which samples it is follows from the labels alone, so that what is trained on them
            serves every scheme and seed.
        validation: the share of what is then left for training that each client keeps out of it, to
            choose hyperparameters by: rounded, at least one sample and not all of them, and
            stratified as its test samples are.
        seed: of the partition, whatever the run's: runs that differ in their seed then train the
            same clients, as a decomposition of their loss needs.
    """

    scheme: str
    clients: Count | None
    test_fraction: Share = 0.0
    stratified: bool = False
    server: Share = later(0.0, "The server's share of each class, the same for all seeds.")
    seed: Seed | None = later(None, "Instead of the run's: the same clients for all seeds.")
    validation: Share = later(0.0, "Of clients' training samples, to choose hyperparameters by.")

    @property
    def name(self) -> str:
        """A path-safe name that tells two different schemes apart."""
        held_out = [f"test{self.test_fraction:g}"] if self.test_fraction else []
        stratified = ["stratified"] if self._holds_out and self.stratified else []
        server = [f"server{self.server:g}"] if self.server else []
        seed = [] if self.seed is None else [f"dealt{self.seed}"]
        chosen = [f"validation{self.validation:g}"] if self.validation else []
        return "-".join([*self._parts(), *held_out, *stratified, *server, *seed, *chosen])

    @property
    def _holds_out(self) -> bool:
        return bool(self.test_fraction or self.validation)

    @property
    def schemes(self) -> tuple[str, ...]:
        """Its own name, and that of the scheme within it."""
        return (self.scheme,)

    def assign(
        self, labels: "Indices", groups: "Indices | None", random: "RandomState"
    ) -> list["Indices"]:
        """Each client's samples, as numbers from 0 to n - 1.

        The function of the scheme's name in ``dealing`` finds them, which is given what it names:
        of these, and of the scheme's keys.

        Args:
            labels: int64 [n], the class of each sample.
            groups: int64 [n], each sample's natural client, or None.
            random: of the partition's seed.

        Raises:
            UserError: when these samples can't be dealt out so.
        """
        from fedrepro.data.partition import assigning

        self.check(labels, groups)
        function = getattr(assigning, self.scheme)
        known = {"labels": labels, "groups": groups, "random": random, **dict(self)}
        names = inspect.signature(function).parameters
        assigned: list[Indices] = function(**{name: known[name] for name in names})
        return assigned

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        """Refuse samples that can't be dealt out so.

        Raises:
            UserError: with key, value and what was expected.
        """

    @abstractmethod
    def _parts(self) -> list[str]: ...

    def refused(self, key: str, expectation: str) -> UserError:
        """The line for a value that these samples don't allow."""
        return bad_value(f"partition {self.name}", key, getattr(self, key), expectation)


class Iid(Scheme):
    """Equal parts of a random permutation."""

    scheme: Literal["iid"]
    clients: Count

    def _parts(self) -> list[str]:
        return ["iid", f"clients{self.clients}"]


class Shards(Scheme):
    """Samples sorted by class, cut into equal shards, `classes_per_client` shards for each client.

    The published "#C=2" of FMNIST and CIFAR-10 in IMA (discrepancy B8). A shard may straddle two
    classes and two shards may be of one class, so a client can hold one to four classes.
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

    Nothing is drawn: the seed decides only what clients hold out. Unlike in `shards` no sample is
    left over: shards differ in size by at most one.
    """

    scheme: Literal["paired_shards"]
    clients: Count

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        if 2 * self.clients > len(labels):
            most = len(labels) // 2
            raise self.refused("clients", f"at most {most}, half of the number of samples")

    def _parts(self) -> list[str]:
        return ["paired_shards", f"clients{self.clients}"]


class Dirichlet(Scheme):
    """Each class shared out in Dirichlet(alpha) proportions (Hsu et al. 2019, as in FedLab).

    A client that has its equal share N/K of all samples already gets nothing of the later classes,
    and the whole draw is repeated until every client has `minimum` samples.

    SuPerFed's code draws in the same way, but drops clients with ten samples or fewer instead of
    drawing again. It needs no scheme of its own: of 200 draws for each of its settings (CIFAR-100,
    K = 100; TinyImageNet, K = 200; MNIST, K = 100; alpha 1 and 10) no client of any had fewer
    than 125 samples, so that neither anyone is dropped nor anything drawn again.
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

    Within a group no client has less than half of the mean, so it ends where `dirichlet` with
    small alpha does not (discrepancies A7 and B17), and client sizes vary little.
    """

    scheme: Literal["grouped_dirichlet"]
    clients: Count
    alpha: Positive

    def _parts(self) -> list[str]:
        return ["grouped_dirichlet", f"clients{self.clients}", f"alpha{self.alpha:g}"]


class Labels(Scheme):
    """Each client holds exactly `classes_per_client` classes (NIID-Bench's "#label=k")."""

    scheme: Literal["labels"]
    clients: Count
    classes_per_client: Count

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        classes = int(labels.max()) + 1
        if self.classes_per_client > classes:
            raise self.refused("classes_per_client", f"at most {classes}, the number of classes")

    def _parts(self) -> list[str]:
        return ["labels", f"clients{self.clients}", f"classes{self.classes_per_client}"]


class ClientDirichlet(Scheme):
    """Hsu et al. (2019): N/K samples for each client, of classes in its own Dirichlet proportions.

    The Dirichlet's mean is the classes' share of all samples and `alpha` its concentration; at
    0.01 a client has one or two classes. Nobody is empty and no sample is used twice, as it is in
    AAggFF's released code; a class that is used up is left out of later clients' draws.
    """

    scheme: Literal["client_dirichlet"]
    clients: Count
    alpha: Positive

    def _parts(self) -> list[str]:
        return ["client_dirichlet", f"clients{self.clients}", f"alpha{self.alpha:g}"]


class ReusingDirichlet(Scheme):
    """What AAggFF's and FedEvg's released code makes of `client_dirichlet` (discrepancy 42).

    Samples are handed out again, to others and to the same client, who may then test on what it
    trains on. For comparison only; whoever asks for it is warned.
    """

    scheme: Literal["reusing_dirichlet"]
    clients: Count
    alpha: Positive

    def assign(
        self, labels: "Indices", groups: "Indices | None", random: "RandomState"
    ) -> list["Indices"]:
        from fedrepro.data.partition.assigning import reusing_dirichlet

        # As released: enough of a class to hold one out.
        least = int(1 / self.test_fraction) if self.test_fraction else 1
        return reusing_dirichlet(labels, self.clients, self.alpha, least, random)

    def _parts(self) -> list[str]:
        return ["reusing_dirichlet", f"clients{self.clients}", f"alpha{self.alpha:g}"]


class Natural(Scheme):
    """One client for each value of the data's group column; with `clients`, so many of them.

    Attributes:
        minimum: groups with fewer samples are no clients.
        given_test: clients hold out what the data set itself marks as test samples.
    """

    scheme: Literal["natural"]
    clients: Count | None = None
    minimum: Count = 1
    given_test: bool = False

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        if self.given_test and self.test_fraction:
            raise ValueError("`given_test` or `test_fraction`, not both")
        return self

    def check(self, labels: "Indices", groups: "Indices | None") -> None:
        if groups is None:
            expectation = "the data set has no groups: expected one with a `group` column"
            raise UserError(
                f"partition {self.name}: scheme: 'natural': {expectation} in config/datasets.yaml"
            )

    def _parts(self) -> list[str]:
        return [
            "natural",
            *([f"clients{self.clients}"] if self.clients else []),
            *([f"minimum{self.minimum}"] if self.minimum > 1 else []),
            *(["given_test"] if self.given_test else []),
        ]


class AtServer(Scheme):
    """One client, the server itself, with what ``server: share`` of any other scheme sets apart."""

    scheme: Literal["at_server"]
    share: Fraction
    clients: Literal[1] = 1

    @model_validator(mode="after")
    def _not_twice(self) -> Self:
        if self.server:
            raise ValueError("`share` here, and `server` with other schemes")
        return self

    def assign(
        self, labels: "Indices", groups: "Indices | None", random: "RandomState"
    ) -> list["Indices"]:
        from fedrepro.data.partition.assigning import of_server

        return [of_server(labels, self.share)]

    def _parts(self) -> list[str]:
        return ["at_server", f"share{self.share:g}"]


class Pachinko(Scheme):
    """Pachinko allocation of classes that have superclasses, the data's groups (CIFAR-100).

    Each client draws its N/K samples from Dirichlet proportions of superclasses and of the classes
    in each (Reddi et al., ICLR 2021, as in TensorFlow Federated); the released code of IMA has none
    (discrepancy B6).

    Attributes:
        coarse: alpha of the superclasses.
        fine: alpha of the classes within one.
    """

    scheme: Literal["pachinko"]
    clients: Count
    coarse: Positive = 0.1
    fine: Positive = 10.0

    def assign(
        self, labels: "Indices", groups: "Indices | None", random: "RandomState"
    ) -> list["Indices"]:
        from fedrepro.data.partition.assigning import pachinko

        if groups is None:
            raise UserError(
                f"partition {self.name}: scheme: 'pachinko': the data set has no groups: expected "
                "one with superclasses, as CIFAR-100 with `superclasses: true`"
            )
        return pachinko(labels, groups, self.clients, (self.coarse, self.fine), random)

    def _parts(self) -> list[str]:
        alphas = [f"coarse{self.coarse:g}", f"fine{self.fine:g}"]
        return ["pachinko", f"clients{self.clients}", *alphas]


def own_scheme(file: Path) -> type[Scheme]:
    """The scheme in a file of one's own.

    Raises:
        UserError: unless it has exactly one.
    """
    module = plugins.import_file("partitions", file)
    found = [
        cls
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Scheme) and cls.__module__ == module.__name__
    ]
    if len(found) != 1 or inspect.isabstract(found[0]) or found[0].assign is Scheme.assign:
        raise UserError(
            f"{file}: expected exactly one class that extends Scheme and has `assign` and "
            f"`_parts`, found {len(found)}"
        )
    return found[0]


def _or_own(
    value: Any,
    handler: ModelWrapValidatorHandler[Any],
    info: ValidationInfo[plugins.Folders | None],
) -> Any:
    name = value.get("scheme") if isinstance(value, Mapping) else None
    file = (info.context or plugins.NONE).files("partitions").get(str(name))
    if file is None:
        return handler(value)
    return own_scheme(file).model_validate(value, context=info.context)


def _any_scheme() -> Any:
    """The type of all schemes above, and of those of one's own, whose keys are dumped as theirs."""
    any_dump = SerializeAsAny()  # type: ignore[type-arg]  # used as an annotation, not a type
    return Annotated[any_of(Scheme, "scheme"), any_dump, WrapValidator(_or_own)]


if TYPE_CHECKING:
    Within = Scheme
else:
    Within = _any_scheme()


class Domains(Scheme):
    """The scheme `within` for each of the data's groups by itself: feature skew beside label skew.

    Its `clients` are those of one group; the first group's come first.
    """

    scheme: Literal["domains"]
    clients: None = None
    within: Within

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        if self.within._holds_out:
            raise ValueError("`test_fraction` and `validation` beside `within`, not in it")
        return self

    def assign(
        self, labels: "Indices", groups: "Indices | None", random: "RandomState"
    ) -> list["Indices"]:
        from fedrepro.data.partition.assigning import domains

        if groups is None:
            raise UserError(
                f"partition {self.name}: scheme: 'domains': the data set has no groups: expected "
                "one of several domains, such as digit_five"
            )
        return domains(labels, groups, lambda theirs: self.within.assign(theirs, None, random))

    @property
    def schemes(self) -> tuple[str, ...]:
        """With that within."""
        return (self.scheme, *self.within.schemes)

    def _parts(self) -> list[str]:
        return ["domains", self.within.name]


if TYPE_CHECKING:
    PartitionSpec = Scheme
else:
    PartitionSpec = _any_scheme()

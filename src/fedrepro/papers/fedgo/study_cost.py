"""Costs and disclosures of FedGO and its baselines: its Tables 2, 14, 16, 17 and Appendix G.

This builds networks and counts; nothing is trained, and the rest is arithmetic. As in Table 17,
operations are FLOPs, two per multiply-add (Table 14 calls multiply-adds MFLOPs, A2), and only the
forward passes of training count.

Where our numbers differ from the printed ones:

- A discriminator is counted once for a real and a generated sample together, as in the printed
  3.29e7, which is 3.298e7 truncated; counting twice would give 3.43e7.
- G1 takes 8.81e10 (A21: batches of 64 for both networks), printed: 8.83e10.
- (G3): FedGAN's clients take 3.50e10, printed: 3.52e10. They train as WGAN-GP does, the generator
  once per five steps of the critic, with the penalty (A23).
- DaFKD's clients also train generator and discriminator in every round. The paper does not say for
  how many steps, and the printed 8.81e11 fits no reading that we tried (A24).
- The printed (G2)+(D2) assumes 376 GFLOPs per image for StyleGAN-XL, which we can't count without
  that network; (G2)'s clients are printed with the cost of (G1)'s generator, as if they had it
  (A17).
- Sizes are those of messages: 4.60 MiB for the generator, whose file, with names, has 4.62; the
  paper prints 4.61. ResNet-18 has 42.7, and the printed 90 are ResNet-50's (A3).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from fedrepro.cost.network_size import operations
from fedrepro.models.adversaries import (
    discriminator_cnn,
    discriminator_cnn_mlp,
    discriminator_resnet8,
    wgan_gp_resnet,
)
from fedrepro.models.batchnorm import resnet18
from fedrepro.papers.fedgo.kinds import Cell

IMAGE = (3, 32, 32)
NEGLIGIBLE = 0.1  # relative to FedAvg's; Table 2 uses the word without a limit
MILLION = 10**6
MIB = 2**20  # bytes


@dataclass(frozen=True)
class Size:
    """One network.

    Attributes:
        flops: of one forward pass of a sample.
        sent: bytes of a transmitted copy.
        parameters: number of trained parameters.
    """

    flops: int
    sent: int
    parameters: int


@dataclass(frozen=True)
class Networks:
    """The networks that FedGO's parties train on CIFAR-10."""

    classifier: Size
    discriminator: Size
    generator: Size
    critic: Size


@dataclass(frozen=True)
class Schedule:
    """The schedule of their training (FedGO, Appendix E.2), on half of CIFAR-10 each.

    Attributes:
        cohort: clients per round.
        samples: per client; the server's are ``images``, generated or not.
        client_epochs, server_epochs: per round.
        discriminator_epochs: once, before the first round.
        generator_steps, critic_steps: of WGAN-GP; the latter per generator step.
        batch: of WGAN-GP.
        gan_rounds, gan_epochs: of FedGAN.
    """

    rounds: int = 100
    clients: int = 20
    cohort: int = 8
    samples: int = 1_250
    images: int = 25_000
    client_epochs: int = 30
    server_epochs: int = 10
    discriminator_epochs: int = 30
    generator_steps: int = 100_000
    critic_steps: int = 5
    batch: int = 64
    gan_rounds: int = 5
    gan_epochs: int = 3


@dataclass(frozen=True)
class Variant:
    """A method of Table 17.

    Attributes:
        generator: "G1" trained by the server, "G2" made elsewhere, "G3" FedGAN; "" for none.
        images: "D1" the server's own, "D2" generated; "" where the server distils nothing.
    """

    method: str
    generator: str = ""
    images: str = ""

    @property
    def label(self) -> str:
        """Its name in the paper's tables."""
        return f"({self.generator})+({self.images})" if self.generator else "-"

    @property
    def distils(self) -> bool:
        return self.method in ("FedDF", "FedGKD+", "DaFKD", "FedGO")


FEDGO = tuple(
    Variant("FedGO", generator, images)
    for generator, images in (("G1", "D1"), ("G2", "D1"), ("G2", "D2"), ("G3", "D2"))
)
VARIANTS = (
    *(Variant(name) for name in ("FedAvg", "FedProx", "FedDF", "FedGKD+", "DaFKD")),
    *FEDGO,
)


def measure() -> Networks:
    """Build FedGO's networks for CIFAR-10 and count them."""
    pair = wgan_gp_resnet(IMAGE, 1)

    def size(module: nn.Module, shape: tuple[int, ...]) -> Size:
        return Size(2 * multiply_adds(module, shape), sent_bytes(module), parameters(module))

    return Networks(
        classifier=size(resnet18(IMAGE, 10), IMAGE),
        discriminator=size(discriminator_cnn(IMAGE, 1), IMAGE),
        generator=size(pair.generator, (pair.latent,)),
        critic=size(pair.critic, IMAGE),
    )


# --- operations ---------------------------------------------------------------------------------


def client_update(networks: Networks, schedule: Schedule) -> int:
    """FLOPs of a client's local training in one round."""
    return schedule.samples * schedule.client_epochs * networks.classifier.flops


def discriminator_training(networks: Networks, schedule: Schedule) -> int:
    """FLOPs of training one client's discriminator, with new fakes in every step."""
    each = networks.generator.flops + networks.discriminator.flops
    return schedule.samples * schedule.discriminator_epochs * each


def gan_training(networks: Networks, schedule: Schedule, seen: int) -> int:
    """FLOPs of WGAN-GP whose critic sees ``seen`` real images.

    A critic step generates fakes and scores reals, fakes and interpolations (the penalty); a
    generator step generates and scores fakes.
    """
    critic = networks.generator.flops + 3 * networks.critic.flops
    generator = networks.generator.flops + networks.critic.flops
    return seen * critic + seen * generator // schedule.critic_steps


def clients_operations(variant: Variant, networks: Networks, schedule: Schedule) -> int | None:
    """FLOPs of all clients in a run, or None if the paper does not say how long they train what."""
    if variant.method == "DaFKD":
        return None
    total = schedule.rounds * schedule.cohort * client_update(networks, schedule)
    if variant.method == "FedGKD+":
        total *= 2  # the mean of the server's last models also processes every mini-batch
    if variant.generator:
        total += schedule.clients * discriminator_training(networks, schedule)
    if variant.generator == "G3":
        seen = schedule.samples * schedule.gan_epochs * schedule.gan_rounds
        total += schedule.clients * gan_training(networks, schedule, seen)
    return total


def labelling_and_distilling(networks: Networks, schedule: Schedule, judged: bool) -> int:
    """FLOPs of the server in a run: teachers process its images once per round (A1).

    Args:
        judged: whether every teacher's discriminator also processes them once per round.
    """
    passes = schedule.cohort + schedule.server_epochs
    each = passes * networks.classifier.flops
    if judged:
        each += schedule.cohort * networks.discriminator.flops
    return schedule.rounds * schedule.images * each


def server_operations(variant: Variant, networks: Networks, schedule: Schedule) -> int | None:
    """FLOPs of the server in a run, or None if they depend on a network that we do not have."""
    if (variant.generator, variant.images) == ("G2", "D2"):
        return None
    if not variant.distils:  # it adds up the cohort's models
        return schedule.rounds * (schedule.cohort - 1) * networks.classifier.parameters
    judged = variant.method in ("DaFKD", "FedGO")
    total = labelling_and_distilling(networks, schedule, judged)
    making = schedule.images * networks.generator.flops
    if variant.method == "DaFKD":
        total += schedule.rounds * making  # retrain the generator, redo its images
    if variant.images == "D2":
        total += making
    if variant.generator == "G1":
        seen = schedule.generator_steps * schedule.critic_steps * schedule.batch
        total += gan_training(networks, schedule, seen)
    return total


# --- communication ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """Bytes that one client transfers.

    Attributes:
        down, up: in every round in which it takes part.
        once_down, once_up: before the first round.
    """

    down: int
    up: int
    once_down: int = 0
    once_up: int = 0


def traffic(variant: Variant, networks: Networks, schedule: Schedule) -> Traffic:
    """What a client receives and sends.

    Raises:
        ValueError: for DaFKD, whose messages the paper does not specify.
    """
    if variant.method == "DaFKD":
        raise ValueError(variant.method)
    model = networks.classifier.sent
    down = 2 * model if variant.method == "FedGKD+" else model  # and the mean of the last models
    if not variant.generator:
        return Traffic(down, model)
    gan = 0
    if variant.generator == "G3":
        gan = schedule.gan_rounds * (networks.generator.sent + networks.critic.sent)
    return Traffic(down, model, gan + networks.generator.sent, gan + networks.discriminator.sent)


# --- privacy ------------------------------------------------------------------------------------


def clients_leak(variant: Variant) -> str:
    """What clients disclose in total (Table 16): an epsilon per kind of message."""
    gan = ["T'*(eps_D+eps_G)"] if variant.generator == "G3" else []
    discriminator = ["eps_D"] if variant.generator else []
    return " + ".join([*gan, "T*eps_M", *discriminator])


def server_leaks(variant: Variant) -> str:
    """What the server's messages reveal about its images; "--" if it has none."""
    if variant.images != "D1":
        return "--"
    generator = ["epshat_G"] if variant.generator == "G1" else []
    return " + ".join([*generator, "T*epshat_M"])


# --- the tables ---------------------------------------------------------------------------------


def _word(extra: float, whole: float) -> str:
    return "Negligible" if extra <= NEGLIGIBLE * whole else "Non-negligible"


def table_2(networks: Networks, schedule: Schedule) -> Iterator[Cell]:
    """FedGO's overheads over FedAvg, in words; a server without data leaks nothing."""
    plain = Variant("FedAvg")
    rounds = schedule.rounds * schedule.cohort / schedule.clients  # in which a client takes part
    usual = traffic(plain, networks, schedule)
    burden = clients_operations(plain, networks, schedule)
    for variant in FEDGO:
        sent = traffic(variant, networks, schedule)
        worked = clients_operations(variant, networks, schedule)
        assert worked is not None and burden is not None
        # Rounds beyond FedAvg's T in which a client sends something derived from its data.
        extra = 1 + (schedule.gan_rounds if variant.generator == "G3" else 0)
        words = {
            "communication_cost": _word(
                sent.once_down + sent.once_up, rounds * (usual.down + usual.up)
            ),
            "privacy_leakage_server_side": "-"
            if server_leaks(variant) == "--"
            else _word(schedule.rounds, schedule.rounds),
            "privacy_leakage_client_side": _word(extra, schedule.rounds),
            "client_side_computational_burden": _word(worked - burden, burden),
        }
        data = "S1" if variant.images == "D1" else "S2"
        setting = f"{data}; {variant.generator}; {variant.images}"
        for metric, word in words.items():
            yield Cell("2", setting, "FedGO", metric, word)


def table_14() -> Iterator[Cell]:
    """Discriminators: weights, and millions of multiply-adds per sample."""
    builders = {
        "CNN": discriminator_cnn,
        "CNN+MLP": discriminator_cnn_mlp,
        "ResNet": discriminator_resnet8,
    }
    for printed, build in builders.items():
        module = build(IMAGE, 1)
        setting = f"discriminator={printed}"
        yield Cell("14", setting, "FedGO", "num_parameters", weights(module))
        macs = multiply_adds(module, IMAGE) / MILLION
        yield Cell("14", setting, "FedGO", "MFLOPs_forward", macs)


def table_16() -> Iterator[Cell]:
    """Disclosures, as expressions."""
    for variant in (Variant("FedAVG"), *FEDGO):
        for side, text in (("client", clients_leak(variant)), ("server", server_leaks(variant))):
            metric = f"{side}_side_total_privacy_leakage (expression)"
            yield Cell("16", variant.label, variant.method, metric, text)


# By side, the discrepancy that explains a difference from Table 17.
OPEN = {
    Variant("DaFKD"): {"client-side": "A24", "total": "A24"},
    Variant("FedGO", "G2", "D2"): {"server-side": "A17", "total": "A17"},
    Variant("FedGO", "G3", "D2"): {"client-side": "A23", "total": "A23"},
}


def table_17(networks: Networks, schedule: Schedule) -> Iterator[Cell]:
    """Millions of FLOPs of a run, for clients and server."""
    for variant in VARIANTS:
        setting = f"{schedule.rounds} rounds, {schedule.clients} clients; {variant.label}"
        client = clients_operations(variant, networks, schedule)
        server = server_operations(variant, networks, schedule)
        holes = {
            "client-side": "" if client is not None else "what its clients train is not said",
            "server-side": "" if server is not None else "StyleGAN-XL is not here to be counted",
        }
        total = None if client is None or server is None else client + server
        holes["total"] = holes["client-side"] or holes["server-side"]
        entries = OPEN.get(variant, {})
        for side, flops in zip(holes, (client, server, total), strict=True):
            value = None if flops is None else flops / MILLION
            metric, entry = f"MFLOPs_{side}", entries.get(side, "")
            yield Cell("17", setting, variant.method, metric, value, holes[side], entry)


def appendix_g(networks: Networks, schedule: Schedule) -> Iterator[Cell]:
    """Sizes in MiB; millions of FLOPs of the parts of Table 17."""
    for name, network in (
        ("ResNet-18 state_dict", networks.classifier),
        ("generator (WGAN-GP)", networks.generator),
        ("client discriminator", networks.discriminator),
    ):
        entry = "A3" if network is networks.classifier else ""
        yield Cell("Section G", name, "-", "size_MB", network.sent / MIB, entry=entry)
    training = client_update(networks, schedule)
    judging = discriminator_training(networks, schedule)
    making = schedule.images * networks.generator.flops
    distilling = labelling_and_distilling(networks, schedule, judged=True)
    for setting, method, metric, flops in (
        ("per client per round", "FedAvg/FedDF", "client_update", training),
        ("once", "FedGO", "client_discriminator_training", judging),
        ("(G3)+(D2)", "FedGO", "distillation_dataset_generation", making),
        ("(G3)+(D2)", "FedGO", "pseudo_labelling_and_distillation", distilling),
    ):
        yield Cell("Section G.2", setting, method, f"MFLOPs_{metric}", flops / MILLION)


def study() -> dict[str, Any]:
    """The cells of :func:`tables`, for the report."""
    return {"cells": [asdict(cell) for cell in tables()]}


def tables() -> list[Cell]:
    """Every cell of FedGO's tables that its networks and schedule determine."""
    networks, schedule = measure(), Schedule()
    return [
        *table_2(networks, schedule),
        *table_14(),
        *table_16(),
        *table_17(networks, schedule),
        *appendix_g(networks, schedule),
    ]


def weights(module: nn.Module) -> int:
    """Weights of linear and convolutional layers, without biases and BatchNorm.

    FedGO's Table 14 calls these parameters.
    """
    layers = nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d
    return sum(layer.weight.numel() for layer in module.modules() if isinstance(layer, layers))


def parameters(module: nn.Module) -> int:
    """All trained parameters."""
    return sum(leaf.numel() for leaf in module.parameters())


def sent_bytes(module: nn.Module) -> int:
    """Bytes of an uncompressed copy of a network in transmission.

    Its parameters and its float buffers, BatchNorm's running statistics.
    """
    buffers = (leaf for leaf in module.buffers() if leaf.is_floating_point())
    return sum(leaf.numel() * leaf.element_size() for leaf in (*module.parameters(), *buffers))


def multiply_adds(module: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Multiply-adds (MACs) of one forward pass of one sample.

    FedGO's Table 14 gives MACs, which Table 17 counts twice, as two operations (A2).

    Args:
        input_shape: of one sample.
    """
    training = module.training
    module.eval()  # BatchNorm can't train on one sample
    counted = operations(module, torch.zeros(1, *input_shape))
    module.train(training)
    return counted // 2

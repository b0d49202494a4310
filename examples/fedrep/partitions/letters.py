"""The clients of FedRep's released code for FEMNIST (``my_sample.py``)."""

from typing import Literal

import numpy as np

from fedrepro.data.partition.schemes import Count, Positive, Scheme


class Letters(Scheme):
    """Client i has classes i, i + 1, ..., equally many samples of each; numbers are lognormal.

    Attributes:
        classes_per_client: how many classes each client has.
        times: what a client's number of samples, a draw of exp(N(4, 1)) + 100, is multiplied by.
    """

    scheme: Literal["letters"]
    clients: Count
    classes_per_client: Count
    times: Positive = 1.0

    def assign(self, labels, groups, random):
        classes = int(labels.max()) + 1
        sizes = self.times * (random.lognormal(4, 1, self.clients) + 100)
        wanted = np.zeros((self.clients, classes))
        for client in range(self.clients):
            held = (client + np.arange(self.classes_per_client)) % classes
            wanted[client, held] = max(2, int(sizes[client] / self.classes_per_client))
        # A class with too few samples gives every client the same share of what it asks for; the
        # released code gives some samples to several clients instead.
        wanted *= np.minimum(1, np.bincount(labels) / wanted.sum(axis=0).clip(min=1))
        parts = [[] for _ in range(self.clients)]
        for label in range(classes):
            pool = random.permutation(np.flatnonzero(labels == label))
            ends = np.floor(wanted[:, label].cumsum() + 1e-6).astype(int)
            for part, piece in zip(parts, np.split(pool, ends), strict=False):
                part.append(piece)
        return [np.concatenate(part) for part in parts]

    def _parts(self):
        classes = f"classes{self.classes_per_client}"
        return ["letters", f"clients{self.clients}", classes, f"times{self.times:g}"]

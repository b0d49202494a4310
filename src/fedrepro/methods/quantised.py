r"""QSGD quantisation (Alistarh et al., NeurIPS 2017, section 3.1), with error feedback. A wrapper.

$$ \hat\Delta_k = \frac{Q(v)}{1 + \min(d / s^2, \sqrt d / s)}, \quad v = \Delta_k + e_k, \quad e_k
\leftarrow v - \hat\Delta_k $$

$$ Q(v)_i = \frac{\|v\|}{s} \mathrm{sign}(v_i) \, \xi_i, \quad \xi_i \in \{\lfloor u_i \rfloor,
\lfloor u_i \rfloor + 1\}, \quad \mathbb{E} \xi_i = u_i = s \frac{|v_i|}{\|v\|} $$

Symbols: $v$: a bucket of an update to which the client adds $e_k$, what earlier rounds left out;
$d$: its entries, 512.

The paper is "QSGD: communication-efficient SGD via gradient quantization and encoding". An update
is cut into buckets of 512 entries. Of a bucket v, a client sends |v| and, for every entry, a sign
and a whole number of at most s = 2^(bits - 1) - 1: |v_i| / |v| * s, rounded up or down at random so
that its mean is right (eq. 4). The numbers are counted with ``bits`` bits each; the paper's Elias
code, which is shorter where most are zero, is not counted.

With error feedback, the decompressed vector is divided by 1 + min(d / s^2, sqrt(d) / s), the
variance bound of Lemma 3.1 with d = 512, or fewer if the vector is shorter: only then does the
compressor lose less than it is given (Karimireddy et al., ICML 2019, Remark 5), and errors stay
bounded. ``error_feedback: false`` is QSGD as in its paper: unbiased, and without memory.

https://arxiv.org/abs/1610.02132, https://arxiv.org/abs/1901.09847
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.engine.fidelity import Limit
from fedrepro.engine.method import Context, Steps, Tree, tree
from fedrepro.methods._compressing import ERROR, Compressing

BUCKET = 512  # entries
ROUNDING = "rounding"  # what a client draws
BITS = Limit(lambda n: 2 <= n <= 16, "a whole number from 2 to 16")


@dataclass(frozen=True)
class Quantised(Compressing):
    """QSGD (Alistarh et al., NeurIPS 2017, eq. 4), with error feedback."""

    drawn: ClassVar[tuple[str, ...]] = (ROUNDING,)

    bits: Annotated[int, BITS] = 8  # of a number, with its sign
    error_feedback: bool = True  # add what was left out to the next update

    @property
    def levels(self) -> int:
        """s, the largest number that is sent."""
        return int(2 ** (self.bits - 1) - 1)

    def shrinking(self, entries: int) -> float:
        """The divisor of a decompressed bucket with so many entries."""
        s = self.levels
        return 1 + min(entries / s**2, math.sqrt(entries) / s) if self.error_feedback else 1.0

    def sample_round(self, ctx: Context, rng: torch.Generator) -> Tree:
        drawn = torch.rand(tree.numel(ctx.net.trainable(ctx.initial)), generator=rng)
        return {**self.inner.sample_round(ctx, rng), ROUNDING: drawn.to(ctx.net.device)}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, after = super().client_update(ctx, message, client_state, steps)
        return update, after if self.error_feedback else {**after, ERROR: client_state[ERROR]}

    def compressed(self, vector: Tensor, client_state: Tree) -> Tensor:
        entries = len(vector)
        padding = -entries % BUCKET
        buckets = functional.pad(vector, (0, padding)).view(-1, BUCKET)
        drawn = functional.pad(client_state[ROUNDING][:entries], (0, padding)).view(-1, BUCKET)
        norms = torch.linalg.vector_norm(buckets, dim=1, keepdim=True)
        exact = buckets.abs() / torch.where(norms > 0, norms, 1.0) * self.levels
        lower = exact.floor()
        rounded = lower + (drawn < exact - lower)
        # A vector of fewer entries is one short bucket; in a longer one, only the last is short.
        shrinking = self.shrinking(min(entries, BUCKET))
        sent: Tensor = buckets.sign() * rounded * norms / (self.levels * shrinking)
        return sent.flatten()[:entries]

    def bytes_of(self, entries: int, width: int) -> int:
        return -(-entries * self.bits // 8) + -(-entries // BUCKET) * width
